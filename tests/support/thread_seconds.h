// The time that a thread computes, which other load on the machine does not lengthen.
#pragma once

#include <ctime>

namespace moestro {

inline double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace moestro
