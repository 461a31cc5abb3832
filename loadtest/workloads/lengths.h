// Distributions of token counts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/workloads/prompts.h"

namespace moestro::loadtest {

// "512": always; "100-2000": uniform, inclusive; "lognormal:500,0.8": median and sigma, as in real traffic.
class Lengths {
 public:
  Lengths() = default;  // always 1
  // INVALID_ARGUMENT begins with `flag` and lists the forms.
  static absl::StatusOr<Lengths> Parse(const std::string& flag, const std::string& text);

  int64_t Draw(Engine& engine) const;  // from 1 to kMaxLength

 private:
  static constexpr int64_t kMaxLength = int64_t{1} << 20;

  int64_t low_ = 1;
  int64_t high_ = 1;
  double median_ = 0;  // > 0: log-normal
  double sigma_ = 0;
};

}  // namespace moestro::loadtest
