#include "common/model/moe/moe_tasks.h"

#include <algorithm>

#include "common/model/linear.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::model {
namespace {

int64_t Groups(int64_t rows) { return PaddedRows(rows) / kRowGroup; }

}  // namespace

IndexRange DomainRows(int64_t rows, int domain, int domains) {
  const IndexRange groups = EvenPart(Groups(rows), domain, domains);
  return {std::min(groups.begin * kRowGroup, rows), std::min(groups.end * kRowGroup, rows)};
}

bool LiesTogether(std::span<const RoutedRow> routed, const ExpertRows& expert) {
  return routed[expert.begin + expert.count - 1].row - routed[expert.begin].row == expert.count - 1;
}

MoeTasks::MoeTasks(const weights::ModelSpec& spec, std::span<const RoutedRow> routed,
                   std::span<const ExpertRows> experts, int64_t dense_width, int domains, int threads,
                   const CodedRows& coded)
    : experts_(std::ssize(experts)),
      expert_width_(spec.moe_intermediate_size),
      dense_width_(dense_width),
      hidden_(spec.hidden_size),
      coded_(coded),
      domains_(domains),
      gate_groups_(TaskGroups(experts_ * Groups(expert_width_) + Groups(dense_width), threads)),
      down_groups_(TaskGroups(Groups(hidden_), threads)) {
  const auto lies_together = [&](const ExpertRows& expert) { return LiesTogether(routed, expert); };
  routed_rows_ = !coded.routed && std::ranges::all_of(experts, lies_together) ? 0 : std::ssize(routed);
}

int64_t MoeTasks::ExpertTasks(int domain) const {
  return CeilDiv(EvenPart(Groups(expert_width_), domain, domains_).size(), gate_groups_);
}
int64_t MoeTasks::AlwaysTasks(int domain) const {
  return CeilDiv(EvenPart(Groups(dense_width_), domain, domains_).size(), gate_groups_);
}
int64_t MoeTasks::DownTasks(int domain) const {
  return CeilDiv(EvenPart(Groups(hidden_), domain, domains_).size(), down_groups_);
}

GateTask MoeTasks::Gate(int domain, int64_t task) const {
  const int64_t expert_tasks = ExpertTasks(domain);
  const int64_t routed_tasks = experts_ * expert_tasks;
  if (task < routed_tasks) {
    const IndexRange groups = EvenPart(Groups(expert_width_), domain, domains_);
    return {task / expert_tasks, TaskRows(expert_width_, groups, task % expert_tasks, gate_groups_)};
  }
  const IndexRange groups = EvenPart(Groups(dense_width_), domain, domains_);
  return {experts_, TaskRows(dense_width_, groups, task - routed_tasks, gate_groups_)};
}

IndexRange MoeTasks::DownRows(int domain, int64_t task) const {
  return TaskRows(hidden_, EvenPart(Groups(hidden_), domain, domains_), task, down_groups_);
}

int64_t MoeTasks::AllExpertTasks() const {
  int64_t sum = 0;
  for (int domain = 0; domain < domains_; ++domain) sum += ExpertTasks(domain);
  return sum;
}
int64_t MoeTasks::AllAlwaysTasks() const {
  int64_t sum = 0;
  for (int domain = 0; domain < domains_; ++domain) sum += AlwaysTasks(domain);
  return sum;
}

}  // namespace moestro::model
