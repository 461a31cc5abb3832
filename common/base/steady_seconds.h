// A clock for durations.
#pragma once

#include <chrono>

namespace moestro {

// Seconds of a monotonic clock with an arbitrary origin.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace moestro
