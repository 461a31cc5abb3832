#include "services/decode/overlap/hot_compute.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/model/moe.h"

namespace moestro {

HostHotCompute::HostHotCompute(const ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows)
    : spec_(spec),
      kernels_(kernels),
      max_rows_(max_rows),
      activations_(spec, max_rows, pool_.threads()),
      progress_(spec) {}

absl::Status HostHotCompute::Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                 device::Stream& stream) {
  // Every row with weight 1 to a sum of its own: the sum is the output.
  ExpertPlan plan;
  std::vector<MlpWeights> weights;
  for (const HotExpert& expert : experts) {
    plan.experts.push_back({static_cast<int32_t>(weights.size()), expert.begin, expert.count});
    weights.push_back(expert.weights);
    for (int64_t row = expert.begin; row < expert.begin + expert.count; ++row) plan.routed.push_back({row, 1.0f});
  }
  return stream.Launch(
      {.name = "hot experts",
       .cost = {},
       .run = [this, plan = std::move(plan), weights = std::move(weights), x, outputs](void*) {
         std::fill_n(outputs, std::ssize(plan.routed) * spec_.hidden_size, 0.0f);
         RunExperts({spec_, kernels_, pool_, activations_, progress_}, max_rows_, {weights, 0}, plan, x, outputs);
         return absl::OkStatus();
       }});
}

}  // namespace moestro
