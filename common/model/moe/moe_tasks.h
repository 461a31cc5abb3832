// How a run of MLPs is cut into tasks: geometry alone.
//
// Every domain has tasks of its own, in this order:
//   gather    a routed row each: copies it next to the other rows of its expert
//   gate, up  an expert and some of the domain's row groups each, experts in ascending id, the dense MLP or shared
//             expert last: their outputs of silu(gate x) * up x, for all rows of the expert
//   down      some of the domain's groups of hidden numbers each, over all experts
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/model/moe/expert_plan.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Of gate and up.
struct GateTask {
  int64_t expert = 0;  // place among the experts; their number: the dense MLP or shared expert
  IndexRange rows;     // of the matrices
};

class MoeTasks {
 public:
  // routed: the rows of all `experts`, one expert's behind the other's. always_width: of the dense MLP or shared
  // expert, 0 without.
  MoeTasks(const ModelSpec& spec, std::span<const RoutedRow> routed, std::span<const ExpertRows> experts,
           int64_t always_width, int domains, int threads);

  // Of a domain.
  IndexRange Gather(int domain) const { return EvenPart(gathered_rows_, domain, domains_); }  // of routed rows
  int64_t GateTasks(int domain) const { return experts_ * ExpertTasks(domain) + AlwaysTasks(domain); }
  int64_t DownTasks(int domain) const;
  GateTask Gate(int domain, int64_t task) const;
  IndexRange DownRows(int domain, int64_t task) const;

  // Of all domains: gate and up tasks of an expert; of the dense MLP or shared expert.
  int64_t AllExpertTasks() const;
  int64_t AllAlwaysTasks() const;

 private:
  int64_t ExpertTasks(int domain) const;
  int64_t AlwaysTasks(int domain) const;

  int64_t experts_;
  int64_t expert_width_;
  int64_t always_width_;
  int64_t hidden_;
  int64_t gathered_rows_;
  int domains_;
  int64_t gate_groups_;  // row groups of a gate and up task
  int64_t down_groups_;  // and of a down task
};

// Whether the expert's rows are neighbours in the batch: always so with one row. They are read where they lie.
bool LiesTogether(std::span<const RoutedRow> routed, const ExpertRows& expert);

}  // namespace moestro
