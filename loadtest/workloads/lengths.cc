#include "loadtest/workloads/lengths.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace moestro::loadtest {

absl::StatusOr<Lengths> Lengths::Parse(const std::string& flag, const std::string& text) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      flag, " \"", text, "\": use a count (512), a range (100-2000) or lognormal:MEDIAN,SIGMA (lognormal:500,0.8)"));
  Lengths lengths;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "lognormal:")) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(rest, absl::MaxSplits(',', 1));
    if (!absl::SimpleAtod(parts.first, &lengths.median_) || !absl::SimpleAtod(parts.second, &lengths.sigma_)) {
      return wrong;
    }
    if (!(lengths.median_ >= 1) || !(lengths.sigma_ >= 0) || lengths.sigma_ > 5) return wrong;
    return lengths;
  }
  const std::vector<std::string> parts = absl::StrSplit(rest, '-');
  if (parts.size() > 2 || !absl::SimpleAtoi(parts.front(), &lengths.low_) ||
      !absl::SimpleAtoi(parts.back(), &lengths.high_) || lengths.low_ < 1 || lengths.high_ < lengths.low_ ||
      lengths.high_ > kMaxLength) {
    return wrong;
  }
  return lengths;
}

int64_t Lengths::Draw(Engine& engine) const {
  double drawn = 0;
  if (median_ > 0) {
    drawn = std::round(std::lognormal_distribution<double>(std::log(median_), sigma_)(engine));
  } else {
    drawn = static_cast<double>(std::uniform_int_distribution<int64_t>(low_, high_)(engine));
  }
  return static_cast<int64_t>(std::clamp(drawn, 1.0, static_cast<double>(kMaxLength)));
}

}  // namespace moestro::loadtest
