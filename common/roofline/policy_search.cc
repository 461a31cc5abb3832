#include "common/roofline/policy_search.h"

namespace moestro::roofline {
namespace {

// Throughputs that differ by less are equal: on a plateau only rounding tells them apart.
constexpr double kEqual = 1e-9;

bool Faster(double tokens_per_second, const std::optional<PolicyChoice>& best) {
  return !best || tokens_per_second > best->cost.tokens_per_second * (1 + kEqual);
}

}  // namespace

std::optional<PolicyChoice> SearchPolicy(const BatchModel& model, const Machine& machine, const BatchWorkload& workload,
                                         BatchPolicy policy) {
  constexpr int64_t kSmall = 4, kStep = 32;
  std::optional<PolicyChoice> best;
  for (policy.micro_batch = 1; policy.micro_batch <= kMostRequests;
       policy.micro_batch += policy.micro_batch < kSmall ? 1 : kStep) {
    double last = 0;
    for (policy.micro_batches = 1; policy.requests() <= kMostRequests; ++policy.micro_batches) {
      const std::optional<BatchPolicy> fits = model.WithBestShares(machine, workload, policy);
      if (!fits && policy.micro_batches == 1) return best;
      if (!fits) break;
      const PolicyCost cost = model.CostOf(machine, workload, *fits);
      if (cost.tokens_per_second < last * (1 - kEqual)) break;
      last = cost.tokens_per_second;
      if (Faster(last, best)) best = {*fits, cost};
    }
  }
  return best;
}

std::optional<PolicyChoice> SearchPolicy(const BatchModel& model, const Machine& machine,
                                         const BatchWorkload& workload) {
  std::optional<PolicyChoice> best;
  for (const bool device_experts : {false, true}) {
    for (const bool device_attention : {false, true}) {
      if (machine.devices == 0 && (device_experts || device_attention)) continue;
      const std::optional<PolicyChoice> choice =
          SearchPolicy(model, machine, workload,
                       BatchPolicy{.device_attention = device_attention, .device_experts = device_experts});
      if (choice && Faster(choice->cost.tokens_per_second, best)) best = choice;
    }
  }
  return best;
}

}  // namespace moestro::roofline
