#include "services/cli/client/status/sources.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/telemetry/http_get.h"

namespace moestro::cli::status {
namespace {

// The addresses of all four roles, with the router at `address`.
absl::StatusOr<MetricsAddresses> Consecutive(const std::string& address) {
  MOE_ASSIGN_OR_RETURN(const Url url, ParseUrl(address));
  constexpr int kLastPort = 65535 - static_cast<int>(kRoles.size()) + 1;
  int port = 0;
  if (!absl::SimpleAtoi(url.port, &port) || port < 1 || port > kLastPort) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\": the port must be 1 to ", kLastPort,
                                                   ", because the other roles use the next three"));
  }
  MetricsAddresses addresses;
  for (const char* role : kRoles) addresses[role] = absl::StrCat(url.host, ":", port++);
  return addresses;
}

absl::Status Add(const std::string& flag, MetricsAddresses& addresses) {
  const std::pair<std::string, std::string> named = absl::StrSplit(flag, absl::MaxSplits('=', 1));
  if (named.second.empty()) {
    MOE_ASSIGN_OR_RETURN(MetricsAddresses all, Consecutive(flag));
    for (auto& [role, address] : all) addresses[role] = std::move(address);
    return absl::OkStatus();
  }
  if (std::ranges::find(kRoles, named.first) == kRoles.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", named.first, "\" is not a role: use router, weight_store, prefill or decode"));
  }
  MOE_RETURN_IF_ERROR(ParseUrl(named.second).status());
  addresses[named.first] = named.second;
  return absl::OkStatus();
}

}  // namespace

MetricsAddresses AddressesOfNode(std::string_view node_env) {
  std::map<std::string, std::string> settings;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(node_env.data(), node_env.size()), '\n')) {
    const std::pair<std::string, std::string> setting = absl::StrSplit(line, absl::MaxSplits('=', 1));
    settings[setting.first] = setting.second;
  }
  MetricsAddresses addresses;
  for (const char* role : kRoles) {
    const std::string& address = settings[absl::StrCat("metrics_", role)];
    if (ParseUrl(address).ok()) addresses[role] = address;
  }
  return addresses;
}

absl::StatusOr<MetricsAddresses> AddressesOfFlags(const std::vector<std::string>& flags) {
  MetricsAddresses addresses;
  for (const std::string& flag : flags) MOE_RETURN_IF_ERROR(Annotate(Add(flag, addresses), "--metrics"));
  return addresses;
}

}  // namespace moestro::cli::status
