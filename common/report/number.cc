#include "common/report/number.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace moestro {

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  return absl::StrFormat("%.*f", magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2, value);
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
