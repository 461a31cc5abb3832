// Device names in flags: "host", "cuda:0" or, for short, "0"; "cuda" is the first GPU.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace moestro::device {

struct DeviceName {
  std::optional<int> cuda_ordinal;  // nullopt: the host

  std::string Text() const { return cuda_ordinal ? "cuda:" + std::to_string(*cuda_ordinal) : "host"; }
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// nullopt if `text` names no device.
inline std::optional<DeviceName> ParseDeviceName(std::string_view text) {
  if (text == "host") return DeviceName{};
  if (text == "cuda") return DeviceName{0};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  int ordinal = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, ordinal);
  if (error != std::errc() || parsed != end || ordinal < 0) return std::nullopt;
  return DeviceName{ordinal};
}

}  // namespace moestro::device
