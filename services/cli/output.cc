#include "services/cli/output.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace moestro {

bool IsTerminal(Stream stream) { return isatty(static_cast<int>(stream)) == 1; }

std::string HumanBytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string HumanCount(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return absl::StrFormat("%.3f B", value / 1e9);
  if (count >= 1'000'000) return absl::StrFormat("%.1f M", value / 1e6);
  return absl::StrFormat("%d", count);
}

void PrintJson(const nlohmann::json& json, bool indent) {
  PrintText(json.dump(indent ? 2 : -1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace));
  PrintText("\n");
}

void PrintText(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

absl::Status OutputStatus() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::DataLossError("stdout: cannot be written; the result is not complete");
}

}  // namespace moestro
