// One HTTP GET.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// "http://HOST:PORT/PATH", "HOST:PORT/PATH" or "HOST:PORT" (path /metrics).
struct Url {
  std::string text;  // the complete "http://HOST:PORT/PATH"
  std::string host;  // an IPv6 address keeps its brackets
  std::string port;
};
absl::StatusOr<Url> ParseUrl(const std::string& text);

// The body of a 200 response. UNAVAILABLE names the address and the failure; DEADLINE_EXCEEDED after `timeout_seconds`,
// including the name lookup. Connects to the host directly, ignoring proxy variables of the environment. Thread-safe.
absl::StatusOr<std::string> HttpGet(const Url& url, double timeout_seconds);

}  // namespace moestro
