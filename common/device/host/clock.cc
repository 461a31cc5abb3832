#include "common/device/host/clock.h"

#include <chrono>
#include <thread>

namespace moestro::device {
namespace {

class Steady final : public Clock {
 public:
  double Now() const override { return Duration(Base::now().time_since_epoch()).count(); }
  void SleepUntil(double seconds) const override {
    std::this_thread::sleep_until(Base::time_point(std::chrono::duration_cast<Base::duration>(Duration(seconds))));
  }

 private:
  using Base = std::chrono::steady_clock;
  using Duration = std::chrono::duration<double>;
};

}  // namespace

const Clock& SteadyClock() {
  static const Steady clock;
  return clock;
}

}  // namespace moestro::device
