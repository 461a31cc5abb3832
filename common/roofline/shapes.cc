#include "common/roofline/shapes.h"

#include "common/base/math.h"
#include "common/model/schema.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"

namespace moestro::roofline {
namespace {

// Assigns addresses in the layout of the segment's writer.
class Layout {
 public:
  Layout(DType linear, int64_t first_address) : linear_(linear), next_(first_address) {}

  void Place(const model::ModelTensor& tensor, PackedMatrix& matrix) {
    const DType dtype = model::IsLinear(tensor.role) ? linear_ : DType::kBF16;
    matrix = {.dtype = dtype, .rows = tensor.rows, .cols = tensor.cols};
    matrix.data = Take<uint8_t>(PackedBytes(dtype, tensor.rows, tensor.cols), weights::kTensorAlignment);
    if (dtype == DType::kF8E4M3) {
      matrix.scales = Take<float>(weights::TensorScaleBytes(dtype, tensor.rows, tensor.cols), weights::kScaleAlignment);
      matrix.exceptions =
          Take<uint32_t>(weights::TensorExceptionBytes(dtype, tensor.rows, tensor.cols), weights::kScaleAlignment);
    }
  }
  template <typename T>
  void Place(const model::ModelTensor& tensor, const T*& values) {
    values = Take<T>(tensor.elements() * int64_t{sizeof(T)}, weights::kTensorAlignment);
  }

 private:
  template <typename T>
  const T* Take(int64_t bytes, int64_t alignment) {
    const int64_t address = RoundUp(next_, alignment);
    next_ = address + bytes;
    return reinterpret_cast<const T*>(address);
  }

  const DType linear_;
  int64_t next_;
};

}  // namespace

model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, DType linear) {
  // Experts have a separate address range, so that router and shared expert are contiguous.
  constexpr int64_t kExperts = int64_t{1} << 60;
  Layout experts(linear, kExperts);
  Layout others(linear, weights::kTensorAlignment);
  model::ModelWeights weights;
  model::ForEachTensor(spec, weights, [&](const model::ModelTensor& tensor, auto& field) {
    (tensor.part == model::TensorPart::kExpert ? experts : others).Place(tensor, field);
  });
  return weights;
}

}  // namespace moestro::roofline
