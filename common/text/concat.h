// String building from std::string_view, which Debian's abseil (with its own string_view) does not accept.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace moestro::text {
namespace internal {

inline void AppendPart(std::string_view part, std::string* out) { out->append(part); }
template <std::integral Number>
void AppendPart(Number part, std::string* out) {
  out->append(std::to_string(part));
}

}  // namespace internal

// Concatenates the parts, which are strings or integers.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string out;
  (internal::AppendPart(parts, &out), ...);
  return out;
}

}  // namespace moestro::text
