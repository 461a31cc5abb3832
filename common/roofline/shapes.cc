#include "common/roofline/shapes.h"

#include "common/base/math.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"

namespace moestro::roofline {
namespace {

// Assigns addresses in the layout of the segment's writer.
class Layout {
 public:
  Layout(TypeOf type_of, int64_t first_address) : type_of_(type_of), next_(first_address) {}

  void Place(const model::ModelTensor& tensor, PackedMatrix& matrix) {
    const DType dtype = type_of_(tensor);
    matrix = {.dtype = dtype, .rows = tensor.rows, .cols = tensor.cols};
    matrix.data = Take<uint8_t>(PackedBytes(dtype, tensor.rows, tensor.cols), weights::kTensorAlignment);
    if (weights::HasScales(dtype)) {
      matrix.scales = Take<float>(weights::TensorScaleBytes(dtype, tensor.rows, tensor.cols), weights::kScaleAlignment);
      const int64_t bytes = weights::TensorExceptionBytes(dtype, tensor.rows, tensor.cols);
      if (dtype == DType::kI8) {
        matrix.compensation = Take<int32_t>(bytes, weights::kScaleAlignment);
      } else {
        matrix.exceptions = Take<uint32_t>(bytes, weights::kScaleAlignment);
      }
    }
  }
  void Place(const model::ModelTensor& tensor, const float*& values) {
    values = Take<float>(tensor.elements() * int64_t{sizeof(float)}, weights::kTensorAlignment);
  }
  void Place(const model::ModelTensor& tensor, model::Embedding& embedding) {
    embedding.dtype = type_of_(tensor);
    embedding.data = Take<uint8_t>(tensor.rows * RowBytes(embedding.dtype, tensor.cols), weights::kTensorAlignment);
  }

 private:
  template <typename T>
  const T* Take(int64_t bytes, int64_t alignment) {
    const int64_t address = RoundUp(next_, alignment);
    next_ = address + bytes;
    return reinterpret_cast<const T*>(address);
  }

  const TypeOf type_of_;
  int64_t next_;
};

}  // namespace

model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, TypeOf type_of) {
  // Experts have a separate address range, so that router and shared expert are contiguous.
  constexpr int64_t kExperts = int64_t{1} << 60;
  Layout experts(type_of, kExperts);
  Layout others(type_of, weights::kTensorAlignment);
  model::ModelWeights weights;
  model::ForEachTensor(spec, weights, [&](const model::ModelTensor& tensor, auto& field) {
    (tensor.part == model::TensorPart::kExpert ? experts : others).Place(tensor, field);
  });
  return weights;
}

model::ModelWeights ShapesOnly(const weights::ModelSpec& spec, DType linear) {
  return ShapesOnly(
      spec, [&](const model::ModelTensor& tensor) { return model::IsLinear(tensor.role) ? linear : DType::kBF16; });
}

}  // namespace moestro::roofline
