#include "loadtest/bench/measure/linear_walk.h"

#include <cmath>

#include "common/base/math.h"
#include "common/model/linear.h"

namespace moestro::bench {

std::string WeightsName(DType dtype) { return dtype == DType::kF8E4M3 ? "FP8" : DTypeName(dtype); }

std::string WalkName(DType dtype, WalkInputs inputs) {
  return WeightsName(dtype) + (inputs == WalkInputs::kCoded ? " coded" : "");
}

std::vector<float> ScalesOf(DType dtype, const Shape& shape) {
  const double deviation = 1 / std::sqrt(static_cast<double>(shape.cols));
  if (dtype == DType::kF8E4M3) return MakeScales(shape.rows, shape.cols, deviation);
  if (dtype == DType::kI8) return MakeRowScales(shape.rows, deviation);
  return {};
}

LinearWalk::LinearWalk(BenchContext& context, DType dtype, const Shape& shape, int64_t tokens, WalkInputs inputs)
    : LinearWalk(context, context.weights, dtype, shape, tokens, inputs) {}

LinearWalk::LinearWalk(BenchContext& context, const WeightPool& weights, DType dtype, const Shape& shape,
                       int64_t tokens, WalkInputs inputs)
    : context_(context),
      weights_(weights),
      shape_(shape),
      tokens_(tokens),
      scales_(ScalesOf(dtype, shape)),
      inputs_(MakeInputs(tokens * shape.cols)),
      groups_(PaddedRows(shape.rows) / kRowGroup),
      outputs_(context.pool.threads(), std::vector<float>(tokens * model::kMaxTaskGroups * kRowGroup)) {
  if (dtype == DType::kI8) {
    const int64_t matrices = weights.Count(shape.rows, shape.cols);
    compensation_ = CompensationOf(context.pool, weights.data(), matrices * groups_, shape.cols);
  }
  if (inputs == WalkInputs::kBf16) return;
  coded_stride_ = CodedRowBytes(CodingOf(dtype), shape.cols);
  coded_.resize(tokens * coded_stride_ / kCodedRowAlignment);
  for (int64_t t = 0; t < tokens; ++t) {
    context.kernels.encode_inputs(CodingOf(dtype), inputs_.data() + t * shape.cols, shape.cols,
                                  coded_[0].bytes + t * coded_stride_);
  }
}

PackedMatrix LinearWalk::Matrix(int64_t i) const {
  PackedMatrix matrix = weights_.Matrix(i, shape_.rows, shape_.cols, scales_.empty() ? nullptr : scales_.data());
  if (!compensation_.empty()) matrix.compensation = compensation_.data() + i * PaddedRows(shape_.rows);
  return matrix;
}

void LinearWalk::Run(int64_t begin, int64_t count) {
  const int64_t task_groups = model::TaskGroups(count * groups_, context_.pool.threads());
  const int64_t tasks = CeilDiv(groups_, task_groups);
  const int64_t matrices = weights_.Count(shape_.rows, shape_.cols);
  context_.pool.Run(count * tasks, [&](int64_t task, int worker) {
    const PackedMatrix matrix = Matrix((begin + task / tasks) % matrices);
    const IndexRange rows = model::TaskRows(shape_.rows, {0, groups_}, task % tasks, task_groups);
    if (!coded_.empty()) {
      context_.kernels.linear_coded(matrix, coded_[0].bytes, coded_stride_, tokens_, outputs_[worker].data(),
                                    rows.size(), rows.begin, rows.end, /*add=*/false);
      return;
    }
    model::LinearRows(context_.kernels, matrix, {inputs_.data(), shape_.cols, tokens_}, rows, outputs_[worker].data());
  });
}

}  // namespace moestro::bench
