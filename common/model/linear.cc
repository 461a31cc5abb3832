#include "common/model/linear.h"

#include <algorithm>

#include "common/base/math.h"

namespace moestro::model {

int64_t TaskGroups(int64_t groups, int threads) {
  constexpr int64_t kTasksPerThread = 4;  // enough tasks that workers finish at about the same time
  return std::clamp<int64_t>(groups / (kTasksPerThread * threads), 1, kMaxTaskGroups);
}

IndexRange TaskRows(int64_t rows, IndexRange groups, int64_t task, int64_t task_groups) {
  const int64_t begin = groups.begin + task * task_groups;
  const int64_t end = std::min(begin + task_groups, groups.end);
  return {begin * kRowGroup, std::min(end * kRowGroup, rows)};
}

void RunLinears(const EngineContext& context, std::span<const LinearJob> jobs) {
  const auto groups_of = [&](const LinearJob& job, int domain) {
    return EvenPart(RowGroups(job.weights), domain, context.pool.domains());
  };
  int64_t all_groups = 0;
  for (const LinearJob& job : jobs) all_groups += RowGroups(job.weights);
  const int64_t task_groups = TaskGroups(all_groups, context.pool.active_threads());
  const auto tasks_of = [&](const LinearJob& job, int domain) {
    return CeilDiv(groups_of(job, domain).size(), task_groups);
  };
  const auto count = [&](int domain) {
    int64_t tasks = 0;
    for (const LinearJob& job : jobs) tasks += tasks_of(job, domain);
    return tasks;
  };
  context.pool.RunPerDomain(count, [&](int domain, int64_t task, int) {
    const LinearJob* job = jobs.data();
    for (; task >= tasks_of(*job, domain); ++job) task -= tasks_of(*job, domain);
    const IndexRange rows = TaskRows(job->weights.rows, groups_of(*job, domain), task, task_groups);
    context.kernels.linear(job->weights, job->input.x, job->input.stride, job->input.rows, job->output + rows.begin,
                           job->weights.rows, rows.begin, rows.end);
  });
}

void AddLinear(const EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual) {
  const auto groups = [&](int domain) { return EvenPart(RowGroups(weights), domain, context.pool.domains()); };
  const int64_t task_groups = TaskGroups(RowGroups(weights), context.pool.active_threads());
  const auto count = [&](int domain) { return CeilDiv(groups(domain).size(), task_groups); };
  context.pool.RunPerDomain(count, [&](int domain, int64_t task, int) {
    const IndexRange rows = TaskRows(weights.rows, groups(domain), task, task_groups);
    context.kernels.linear_add(weights, input.x, input.stride, input.rows, residual + rows.begin, weights.rows,
                               rows.begin, rows.end);
  });
}

}  // namespace moestro::model
