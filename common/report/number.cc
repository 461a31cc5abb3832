#include "common/report/number.h"

#include <array>
#include <cmath>

#include "absl/strings/str_format.h"

namespace moestro {

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  return absl::StrFormat("%.*f", magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2, value);
}

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

double RoundAxisEnd(double largest) {
  if (!(largest > 0)) return 1;
  const double wanted = 1.05 * largest;
  const double decade = std::pow(10, std::floor(std::log10(wanted)));
  for (const double step : {1.0, 1.2, 1.6, 2.0, 2.5, 4.0, 5.0, 8.0}) {
    if (wanted <= step * decade) return step * decade;
  }
  return 10 * decade;
}

}  // namespace moestro
