#include "common/model/linear.h"

#include <algorithm>

namespace moestro {

int64_t GroupWidth(const PackedMatrix& weights, int64_t group) {
  return std::min(kRowGroup, weights.rows - group * kRowGroup);
}

void LinearGroup(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input, int64_t group,
                 float* output) {
  const int64_t begin = group * kRowGroup;
  // The kernel indexes its output by the row of the weights.
  kernels.linear(weights, input.x, input.stride, input.rows, output - begin, kRowGroup, begin,
                 begin + GroupWidth(weights, group));
}

void RunLinears(EngineContext& context, std::span<const LinearJob> jobs) {
  int64_t groups = 0;
  for (const LinearJob& job : jobs) groups += RowGroups(job.weights);
  context.pool.Run(groups, [&](int64_t group, int) {
    const LinearJob* job = jobs.data();
    for (; group >= RowGroups(job->weights); ++job) group -= RowGroups(job->weights);
    const int64_t begin = group * kRowGroup;
    context.kernels.linear(job->weights, job->input.x, job->input.stride, job->input.rows, job->output,
                           job->weights.rows, begin, begin + GroupWidth(job->weights, group));
  });
}

void AddLinear(EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual) {
  context.pool.Run(RowGroups(weights), [&](int64_t group, int worker) {
    float* output = context.activations.workers[worker].group_a.get();
    LinearGroup(context.kernels, weights, input, group, output);
    for (int64_t row = 0; row < input.rows; ++row) {
      context.kernels.axpy(1.0f, output + row * kRowGroup, GroupWidth(weights, group),
                           residual + row * weights.rows + group * kRowGroup);
    }
  });
}

}  // namespace moestro
