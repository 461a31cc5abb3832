#include "services/weight_store/pack/jobs.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/weights/checksum.h"
#include "common/weights/tensor_size.h"
#include "services/weight_store/pack/row_reader.h"

namespace moestro::store {
namespace {

// Small enough that threads share even one large tensor evenly and stop soon; large enough for efficient disk reads.
constexpr int64_t kJobBytes = int64_t{4} << 20;

}  // namespace

std::vector<PackJob> MakeJobs(const checkpoint::Plan& plan) {
  std::vector<size_t> order(plan.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    const checkpoint::TensorSource& source = plan.sources[i];
    return std::tuple(source.weight.shard, source.weight.info->file_offset + source.weight.offset, i);
  });
  std::vector<PackJob> jobs;
  for (const size_t i : order) {
    const weights::TensorPlan& tensor = plan.tensors[i];
    const int64_t tensor_bytes = weights::TensorDataBytes(tensor.layout, tensor.dtype, tensor.rows, tensor.cols);
    const int64_t slice_bytes = weights::TensorSliceBytes(tensor.layout, tensor.dtype, tensor.cols);
    const int64_t slices = weights::ChecksumSlices(tensor.rows);
    const checkpoint::TensorSource::Kind kind = plan.sources[i].kind;
    const bool transposed =
        kind == checkpoint::TensorSource::Kind::kTransposed || kind == checkpoint::TensorSource::Kind::kInt4ByInput;
    const int64_t step = transposed ? SlicesReadTogether(tensor) : std::max<int64_t>(1, kJobBytes / slice_bytes);
    for (int64_t first = 0; first < slices; first += step) {
      const int64_t count = std::min(step, slices - first);
      jobs.push_back({i, first, count, std::min(tensor_bytes - first * slice_bytes, count * slice_bytes)});
    }
  }
  return jobs;
}

}  // namespace moestro::store
