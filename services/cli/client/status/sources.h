// The addresses at which a node's roles answer. Pure.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::cli::status {

inline constexpr std::array<const char*, 4> kRoles = {"router", "weight_store", "prefill", "decode"};

// Role → HOST:PORT of its /metrics. Roles that are absent have no known address.
using MetricsAddresses = std::map<std::string, std::string>;

// Reads the addresses that deploy/up has written to RUN_DIR/node.env (KEY=VALUE lines): metrics_router and so on.
// Without those whose keys are absent or no address.
MetricsAddresses AddressesOfNode(std::string_view node_env);

// Reads --metrics. ROLE=HOST:PORT names one role's address. HOST:PORT names the router's, with the others at the next
// ports. Later flags win. INVALID_ARGUMENT names the flag.
absl::StatusOr<MetricsAddresses> AddressesOfFlags(const std::vector<std::string>& flags);

}  // namespace moestro::cli::status
