// How long tests wait for what must happen.
#pragma once

#include <chrono>

namespace moestro {

// Whatever takes longer hangs, however busy the machine is. Nothing may depend on how much shorter it takes.
inline constexpr std::chrono::seconds kHang{300};
inline constexpr double kHangSeconds = kHang.count();

}  // namespace moestro
