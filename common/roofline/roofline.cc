#include "common/roofline/roofline.h"

#include <algorithm>

namespace moestro::roofline {

double Attainable(const Level& level, double intensity) {
  return std::min(level.flops_per_second, level.memory_bytes_per_second * intensity);
}

double Attainable(const Level& level, double intensity, double link_bytes_per_second, double linked_intensity) {
  return std::min(Attainable(level, intensity), link_bytes_per_second * linked_intensity);
}

double FirstTurningPoint(const Level& from, double link_bytes_per_second, double intensity) {
  return Attainable(from, intensity) / link_bytes_per_second;
}

double SecondTurningPoint(const Level& level, double link_bytes_per_second, double intensity) {
  return Attainable(level, intensity) / link_bytes_per_second;
}

double BalanceIntensity(const Level& level, double link_bytes_per_second, double intensity) {
  return level.memory_bytes_per_second * intensity / link_bytes_per_second;
}

}  // namespace moestro::roofline
