// The hierarchical roofline model of MoE-Lightning (section 3.2): what a computation attains on a machine whose levels,
// a device and its host, have processors and memory of their own and a link between them.
//
// The intensity of a computation at a level: operations for each byte that it takes from this level's memory.
#pragma once

#include <cstdint>
#include <string>

namespace moestro::roofline {

// All units of a level together.
struct Level {
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  double flops_per_second = 0;  // BF16 or F16, F32 accumulation
};

struct Machine {
  std::string name;
  Level device;
  Level host;
  int64_t devices = 1;               // that `device` has, for what each of them keeps; 0: there is the host only
  double link_bytes_per_second = 0;  // from the host's memory to the devices', all links together
};

// Operations per second on a level of what needs its own memory only (Eq. 8).
double Attainable(const Level& level, double intensity);
// Of what also takes bytes over a link, from the memory at its other end (Eq. 7).
double Attainable(const Level& level, double intensity, double link_bytes_per_second, double linked_intensity);

// P1 (Eq. 9), as an intensity at the far level `from`: what is below does not get faster by going over the link, as the
// far level's own processors do as much with `intensity`. Infinite intensity: the highest such point.
double FirstTurningPoint(const Level& from, double link_bytes_per_second, double intensity);
// P2 (Eq. 10), likewise: what is below waits for the link, above it for the level itself, with `intensity` there.
double SecondTurningPoint(const Level& level, double link_bytes_per_second, double intensity);
// Eq. 11, likewise: where the link takes as long as the level's memory. More is of no use to what the memory bounds.
double BalanceIntensity(const Level& level, double link_bytes_per_second, double intensity);

}  // namespace moestro::roofline
