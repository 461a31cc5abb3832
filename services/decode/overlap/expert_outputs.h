// Outputs of a pass's experts that several groups compute, each into memory of its own, and their sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/engine/decode_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro::decode {

// A pass: Sort, then Give for every expert (ascending ids within a group of the CPU's kernels), then Place, then, when
// the outputs are there, Add.
class ExpertOutputs {  // not thread-safe; keeps its memory
 public:
  // All outlive it. max_rows: of a pass.
  ExpertOutputs(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, int64_t groups,
                int64_t max_rows);

  // The experts of `count` rows, in ascending id.
  const model::ExpertPlan& Sort(int64_t count, const engine::ExpertIo& rows);
  const model::ExpertPlan& sorted() const { return plan_; }  // the last one
  // The group computes the plan's expert `index`, behind those that it has.
  void Give(size_t index, int64_t group);
  bool IsGiven(size_t index) const { return group_of_[index] >= 0; }
  // The outputs of groups lie one behind the other, those of a group in the order of its experts.
  void Place();
  // Its experts, and the rows of x that each reads.
  const model::ExpertPlan& group(int64_t index) const { return groups_[static_cast<size_t>(index)]; }
  int64_t first_output(int64_t group) const { return first_[static_cast<size_t>(group)]; }
  // rows.sums = the weighted outputs, F32 [routed rows, hidden], added in ascending id: the bits of the CPU alone.
  void Add(const float* outputs, const engine::ExpertIo& rows) const;

 private:
  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  int64_t count_ = 0;  // rows
  model::ExpertPlan plan_;
  std::vector<model::ExpertPlan> groups_;
  std::vector<int64_t> first_;        // output of each group
  std::vector<int64_t> group_of_;     // by expert of plan_
  std::vector<int64_t> output_in_;    // the same: its first output in the group
  std::vector<int64_t> output_of_;    // [rows, experts_per_token]: where the output of a row's choice is
  std::vector<int32_t> next_choice_;  // of each row, while they are walked
};

}  // namespace moestro::decode
