#include "tests/support/wall_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<time_t> g_step{0};
}  // namespace

// Takes the place of the C library's, also for the libraries that the test loads.
extern "C" int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += g_step.load();
  return static_cast<int>(result);
}

namespace moestro {

WallClockStep::WallClockStep(std::chrono::seconds step) { g_step = step.count(); }
WallClockStep::~WallClockStep() { g_step = 0; }

}  // namespace moestro
