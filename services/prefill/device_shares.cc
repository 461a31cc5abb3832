#include "services/prefill/device_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moestro::prefill {
namespace {

constexpr double kParts = 10;       // that the fastest device's share is rounded to
constexpr double kAlike = 10 / 9.;  // devices take at most so many times as long as the fastest that is like them

}  // namespace

std::vector<int64_t> SharesOf(std::span<const double> seconds) {
  std::vector<size_t> by_speed(seconds.size());
  std::iota(by_speed.begin(), by_speed.end(), size_t{0});
  std::ranges::sort(by_speed, {}, [&](size_t device) { return seconds[device]; });
  std::vector<int64_t> shares(seconds.size());
  double fastest = 0;  // of those that are alike
  int64_t divisor = 0;
  for (const size_t device : by_speed) {
    if (fastest == 0 || seconds[device] > fastest * kAlike) fastest = seconds[device];
    const double speed = seconds[by_speed.front()] / fastest;
    shares[device] = std::max<int64_t>(1, std::llround(kParts * speed));
    divisor = std::gcd(divisor, shares[device]);
  }
  for (int64_t& share : shares) share /= divisor;
  return shares;
}

}  // namespace moestro::prefill
