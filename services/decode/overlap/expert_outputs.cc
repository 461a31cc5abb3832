#include "services/decode/overlap/expert_outputs.h"

#include <algorithm>

namespace moestro::decode {

ExpertOutputs::ExpertOutputs(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool,
                             int64_t groups, int64_t max_rows)
    : spec_(spec),
      kernels_(kernels),
      pool_(pool),
      groups_(static_cast<size_t>(groups)),
      first_(static_cast<size_t>(groups)) {
  const auto experts = static_cast<size_t>(spec.num_experts);
  const auto routed = static_cast<size_t>(max_rows * spec.experts_per_token);
  for (model::ExpertPlan& group : groups_) {
    group.experts.reserve(experts);
    group.routed.reserve(routed);
  }
  group_of_.reserve(experts);
  output_in_.reserve(experts);
  output_of_.resize(routed);
  next_choice_.resize(static_cast<size_t>(max_rows));
}

const model::ExpertPlan& ExpertOutputs::Sort(int64_t count, const engine::ExpertIo& rows) {
  count_ = count;
  const int64_t per_row = spec_.experts_per_token;
  plan_.Sort(std::span(rows.choices, static_cast<size_t>(count * per_row)), per_row, spec_.num_experts);
  for (model::ExpertPlan& group : groups_) {
    group.experts.clear();
    group.routed.clear();
  }
  group_of_.assign(plan_.experts.size(), -1);
  output_in_.assign(plan_.experts.size(), 0);
  return plan_;
}

void ExpertOutputs::Give(size_t index, int64_t group) {
  model::ExpertPlan& to = groups_[static_cast<size_t>(group)];
  const model::ExpertRows& expert = plan_.experts[index];
  const auto routed =
      std::span(plan_.routed).subspan(static_cast<size_t>(expert.begin), static_cast<size_t>(expert.count));
  group_of_[index] = group;
  output_in_[index] = std::ssize(to.routed);
  to.experts.push_back({expert.expert, output_in_[index], expert.count});
  to.routed.insert(to.routed.end(), routed.begin(), routed.end());
}

void ExpertOutputs::Place() {
  int64_t end = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    first_[group] = end;
    end += std::ssize(groups_[group].routed);
  }
  // A row's experts come in ascending id, as its choices do.
  std::fill_n(next_choice_.begin(), count_, 0);
  for (size_t index = 0; index < plan_.experts.size(); ++index) {
    const model::ExpertRows& expert = plan_.experts[index];
    int64_t output = first_[static_cast<size_t>(group_of_[index])] + output_in_[index];
    for (int64_t i = expert.begin; i < expert.begin + expert.count; ++i) {
      const int64_t row = plan_.routed[static_cast<size_t>(i)].row;
      int32_t& choice = next_choice_[static_cast<size_t>(row)];
      output_of_[static_cast<size_t>(row * spec_.experts_per_token + choice++)] = output++;
    }
  }
}

void ExpertOutputs::Add(const float* outputs, const engine::ExpertIo& rows) const {
  const int64_t per_row = spec_.experts_per_token, hidden = spec_.hidden_size;
  const auto add = [&](int64_t row, int) {
    float* const sums = rows.sums + row * hidden;
    std::fill_n(sums, hidden, 0.0f);
    for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
      kernels_.axpy(rows.choices[i].weight, outputs + output_of_[static_cast<size_t>(i)] * hidden, hidden, sums);
    }
  };
  if (count_ == 1) return add(0, 0);
  const ScopedAffinity pinned = pool_.PinCaller();
  pool_.Run(count_, add);
}

}  // namespace moestro::decode
