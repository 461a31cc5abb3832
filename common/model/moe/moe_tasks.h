// Cuts a run of MLPs into tasks: geometry only.
//
// Every domain has its own tasks, in this order:
//   gather    one routed row each: copies it next to the other rows of its expert, in codes if the expert takes these;
//             then one row each: codes it for the dense MLP or shared expert
//   gate, up  one expert and some of the domain's row groups each, experts in ascending id, the dense MLP or shared
//             expert last: computes silu(gate x) * up x for all rows of the expert
//   down      some of the domain's groups of hidden elements each, over all experts
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/model/moe/expert_plan.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// A gate and up task.
struct GateTask {
  int64_t expert = 0;  // index among the experts; equal to their number: the dense MLP or shared expert
  IndexRange rows;     // of the matrices
};

// Inputs that are coded.
struct CodedRows {
  bool routed = false;     // of some expert
  int64_t dense_rows = 0;  // of the dense MLP or shared expert
};

class MoeTasks {
 public:
  // routed: the rows of all `experts`, contiguous by expert. dense_width: the width of the dense MLP or shared expert,
  // 0 without one.
  MoeTasks(const weights::ModelSpec& spec, std::span<const RoutedRow> routed, std::span<const ExpertRows> experts,
           int64_t dense_width, int domains, int threads, const CodedRows& coded = {});

  // Tasks of a domain.
  // Of the routed rows, unless no expert needs them, then of the coded rows of the dense MLP or shared expert.
  IndexRange Gather(int domain) const { return EvenPart(routed_rows_ + coded_.dense_rows, domain, domains_); }
  int64_t routed_rows() const { return routed_rows_; }  // among those of Gather
  int64_t GateTasks(int domain) const { return experts_ * ExpertTasks(domain) + AlwaysTasks(domain); }
  int64_t DownTasks(int domain) const;
  GateTask Gate(int domain, int64_t task) const;
  IndexRange DownRows(int domain, int64_t task) const;

  // Tasks of all domains: gate and up tasks of one expert, then of the dense MLP or shared expert.
  int64_t AllExpertTasks() const;
  int64_t AllAlwaysTasks() const;

 private:
  int64_t ExpertTasks(int domain) const;
  int64_t AlwaysTasks(int domain) const;

  int64_t experts_;
  int64_t expert_width_;
  int64_t dense_width_;
  int64_t hidden_;
  int64_t routed_rows_;
  CodedRows coded_;
  int domains_;
  int64_t gate_groups_;  // row groups per gate and up task
  int64_t down_groups_;  // row groups per down task
};

// Of a matrix of so many rows, those that a domain multiplies.
IndexRange DomainRows(int64_t rows, int domain, int domains);

// Whether the expert's rows are contiguous in the batch (always true for one row). They are then read in place.
bool LiesTogether(std::span<const RoutedRow> routed, const ExpertRows& expert);

}  // namespace moestro::model
