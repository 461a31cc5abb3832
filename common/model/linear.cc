#include "common/model/linear.h"

#include <algorithm>

#include "common/base/math.h"

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
  const auto groups_of = [&](const LinearJob& job, int domain) {
    return EvenPart(RowGroups(job.weights), domain, context.pool.domains());
  };
  const auto count = [&](int domain) {
    int64_t groups = 0;
    for (const LinearJob& job : jobs) groups += groups_of(job, domain).size();
    return groups;
  };
  context.pool.RunPerDomain(count, [&](int domain, int64_t task, int) {
    const LinearJob* job = jobs.data();
    for (; task >= groups_of(*job, domain).size(); ++job) task -= groups_of(*job, domain).size();
    const int64_t group = groups_of(*job, domain).begin + task;
    const int64_t begin = group * kRowGroup;
    context.kernels.linear(job->weights, job->input.x, job->input.stride, job->input.rows, job->output,
                           job->weights.rows, begin, begin + GroupWidth(job->weights, group));
  });
}

void AddLinear(EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual) {
  const auto groups = [&](int domain) { return EvenPart(RowGroups(weights), domain, context.pool.domains()); };
  const auto count = [&](int domain) { return groups(domain).size(); };
  context.pool.RunPerDomain(count, [&](int domain, int64_t task, int worker) {
    const int64_t group = groups(domain).begin + task;
    float* output = context.activations.workers[worker].group_a.get();
    LinearGroup(context.kernels, weights, input, group, output);
    for (int64_t row = 0; row < input.rows; ++row) {
      context.kernels.axpy(1.0f, output + row * kRowGroup, GroupWidth(weights, group),
                           residual + row * weights.rows + group * kRowGroup);
    }
  });
}

}  // namespace moestro
