// How flags name GPUs.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace moestro::device {

// The ordinal that "cuda:N" names, "cuda" the first one; nullopt for anything else.
inline std::optional<int> CudaOrdinal(std::string_view device) {
  if (device == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  int ordinal = 0;
  const char* const end = device.data() + device.size();
  const auto [parsed, error] = std::from_chars(device.data() + kPrefix.size(), end, ordinal);
  if (error != std::errc() || parsed != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

}  // namespace moestro::device
