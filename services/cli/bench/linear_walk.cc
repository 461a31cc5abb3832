#include "services/cli/bench/linear_walk.h"

#include <algorithm>
#include <cmath>

namespace moestro::bench {

LinearWalk::LinearWalk(BenchContext& context, DType dtype, const Shape& shape, int64_t tokens)
    : context_(context),
      shape_(shape),
      tokens_(tokens),
      inputs_(MakeInputs(tokens * shape.cols)),
      outputs_(context.pool.threads(), std::vector<float>(tokens * kRowGroup)) {
  if (dtype == DType::kF8E4M3) {
    scales_ = MakeScales(shape.rows, shape.cols, 1 / std::sqrt(static_cast<double>(shape.cols)));
  }
}

void LinearWalk::Run(int64_t begin, int64_t count) {
  const int64_t groups = PaddedRows(shape_.rows) / kRowGroup;
  const int64_t matrices = context_.weights.Count(shape_.rows, shape_.cols);
  context_.pool.Run(count * groups, [&](int64_t task, int worker) {
    const PackedMatrix matrix = context_.weights.Matrix((begin + task / groups) % matrices, shape_.rows, shape_.cols,
                                                        scales_.empty() ? nullptr : scales_.data());
    const int64_t row = task % groups * kRowGroup;
    // The kernel indexes its output by the row of the weights.
    context_.kernels.linear(matrix, inputs_.data(), shape_.cols, tokens_, outputs_[worker].data() - row, kRowGroup, row,
                            std::min(shape_.rows, row + kRowGroup));
  });
}

}  // namespace moestro::bench
