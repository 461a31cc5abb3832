// The texts of single tokens, asked once each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/router_client.h"

namespace moestro {

class TokenTexts {
 public:
  explicit TokenTexts(RouterClient& client) : client_(client) {}
  // Bytes that are no complete character show as U+FFFD.
  absl::StatusOr<std::string> Get(int32_t id);

 private:
  RouterClient& client_;
  std::map<int32_t, std::string> texts_;
};

}  // namespace moestro
