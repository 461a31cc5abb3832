// The servers under test.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/server_options.h"
#include "loadtest/client/transport.h"

namespace moestro::loadtest {

struct ModelInfo {
  std::string name;
  std::string fingerprint;
  int64_t vocab_size = 0;
  int64_t max_context_tokens = 0;
};

// Asks a server for its model. UNAVAILABLE includes a remedy if nothing listens there.
absl::StatusOr<ModelInfo> AskModel(const ServerOptions& server);

// One connection to each server, with any number of concurrent requests. A request ends with DEADLINE_EXCEEDED after
// `timeout_seconds`; 0: never.
std::unique_ptr<Transport> ConnectServers(const std::vector<ServerOptions>& servers, double timeout_seconds);

}  // namespace moestro::loadtest
