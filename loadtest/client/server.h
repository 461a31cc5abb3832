// The servers under test.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/client/transport.h"

namespace moestro::loadtest {

struct ModelInfo {
  std::string name;
  std::string fingerprint;
  int64_t vocab_size = 0;
  int64_t max_context_tokens = 0;
};

// Asks a server for its model. UNAVAILABLE includes a remedy if nothing listens there.
absl::StatusOr<ModelInfo> AskModel(const std::string& server);

// One connection to each server (HOST:PORT or unix:PATH), with any number of concurrent requests. A request ends with
// DEADLINE_EXCEEDED after `timeout_seconds`; 0: never.
std::unique_ptr<Transport> ConnectServers(const std::vector<std::string>& servers, double timeout_seconds);

}  // namespace moestro::loadtest
