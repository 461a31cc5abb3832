#include "common/engine/host/host_hot_compute.h"

#include <algorithm>

#include "common/model/moe/moe.h"

namespace moestro {

HostHotCompute::HostHotCompute(const ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows)
    : context_{spec, kernels, pool_}, buffers_(spec, max_rows, pool_.threads(), /*always_width=*/0) {
  const auto most = static_cast<size_t>(max_rows * spec.experts_per_token);
  plan_.experts.reserve(most);
  plan_.routed.reserve(most);
  weights_.reserve(most);
}

absl::Status HostHotCompute::Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                 device::Stream& stream) {
  // Every row with weight 1 to a sum of its own: the sum is the output.
  plan_.experts.clear();
  plan_.routed.clear();
  weights_.clear();
  for (const HotExpert& expert : experts) {
    plan_.experts.push_back({static_cast<int32_t>(weights_.size()), expert.begin, expert.count});
    weights_.push_back(expert.weights);
    for (int64_t row = expert.begin; row < expert.begin + expert.count; ++row) plan_.routed.push_back({row, 1.0f});
  }
  x_ = x;
  outputs_ = outputs;
  return stream.Launch({.name = "hot experts", .cost = {}, .run = [this](void*) {
                          std::fill_n(outputs_, std::ssize(plan_.routed) * context_.spec.hidden_size, 0.0f);
                          RunExperts({context_, buffers_}, {weights_, 0}, plan_, x_, outputs_);
                          return absl::OkStatus();
                        }});
}

}  // namespace moestro
