// The policy under which a batch decodes fastest on a machine, by the model of batch_policy.h.
#pragma once

#include <cstdint>
#include <optional>

#include "common/roofline/batch_policy.h"

namespace moestro::roofline {

// Of a batch. A bound for models so small that memories hold more than anyone has.
inline constexpr int64_t kMostRequests = 8192;

struct PolicyChoice {
  BatchPolicy policy;
  PolicyCost cost;
};

// Tries micro-batches of 1 to 4, 36, 68, 100, ... requests, as MoE-Lightning's program does. For each of them it tries
// one micro-batch, two, three, and so on, while they fit and the throughput does not fall. Of equals the first is
// taken: the fewest requests of the smallest micro-batch. Takes less than a second. Nothing: no policy fits.
//
// With attention and experts where `policy` has them.
std::optional<PolicyChoice> SearchPolicy(const BatchModel& model, const Machine& machine, const BatchWorkload& workload,
                                         BatchPolicy policy);
// In all combinations that the machine has; of equals the one with more on the host.
std::optional<PolicyChoice> SearchPolicy(const BatchModel& model, const Machine& machine,
                                         const BatchWorkload& workload);

}  // namespace moestro::roofline
