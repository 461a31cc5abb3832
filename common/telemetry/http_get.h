// One HTTP GET.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// "http://HOST:PORT/PATH", "HOST:PORT/PATH" or "HOST:PORT" (path /metrics).
struct Url {
  std::string text;  // whole, "http://HOST:PORT/PATH"
  std::string host;  // an IPv6 address in its brackets
  std::string port;
};
absl::StatusOr<Url> ParseUrl(const std::string& text);

// The body of a reply 200. UNAVAILABLE names the address, and what failed; DEADLINE_EXCEEDED after `timeout_seconds`,
// looking up the name included. Goes to the host itself, whatever proxies the environment names. Thread-safe.
absl::StatusOr<std::string> HttpGet(const Url& url, double timeout_seconds);

}  // namespace moestro
