// String building from std::string_view, which the abseil of Debian (with a string_view of its own) does not take.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace moestro {
namespace internal {

inline void AppendPart(std::string_view part, std::string* out) { out->append(part); }
template <std::integral Number>
void AppendPart(Number part, std::string* out) {
  out->append(std::to_string(part));
}

}  // namespace internal

// The parts, which are strings or integers, one after the other.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string out;
  (internal::AppendPart(parts, &out), ...);
  return out;
}

}  // namespace moestro
