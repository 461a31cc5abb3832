#include "loadtest/bench/measure/linear_walk.h"

#include <cmath>

#include "common/base/math.h"
#include "common/model/linear.h"

namespace moestro::bench {

std::string WeightsName(DType dtype) { return dtype == DType::kF8E4M3 ? "FP8" : DTypeName(dtype); }

LinearWalk::LinearWalk(BenchContext& context, DType dtype, const Shape& shape, int64_t tokens)
    : context_(context),
      shape_(shape),
      tokens_(tokens),
      inputs_(MakeInputs(tokens * shape.cols)),
      groups_(PaddedRows(shape.rows) / kRowGroup),
      outputs_(context.pool.threads(), std::vector<float>(tokens * model::kMaxTaskGroups * kRowGroup)) {
  if (dtype == DType::kF8E4M3) {
    scales_ = MakeScales(shape.rows, shape.cols, 1 / std::sqrt(static_cast<double>(shape.cols)));
  }
}

void LinearWalk::Run(int64_t begin, int64_t count) {
  const int64_t task_groups = model::TaskGroups(count * groups_, context_.pool.threads());
  const int64_t tasks = CeilDiv(groups_, task_groups);
  const int64_t matrices = context_.weights.Count(shape_.rows, shape_.cols);
  context_.pool.Run(count * tasks, [&](int64_t task, int worker) {
    const PackedMatrix matrix = context_.weights.Matrix((begin + task / tasks) % matrices, shape_.rows, shape_.cols,
                                                        scales_.empty() ? nullptr : scales_.data());
    const IndexRange rows = model::TaskRows(shape_.rows, {0, groups_}, task % tasks, task_groups);
    model::LinearRows(context_.kernels, matrix, {inputs_.data(), shape_.cols, tokens_}, rows, outputs_[worker].data());
  });
}

}  // namespace moestro::bench
