// Numbers as reports show them.
#pragma once

#include <cstdint>
#include <string>

namespace moestro {

// "0.97", "12.3", "1234": three or more digits that matter; "-" for what is not finite.
std::string ShortNumber(double value);

// "1.50 GiB", "37 B"
std::string HumanBytes(int64_t bytes);
// "671.026 B", "28.3 M", "12"
std::string HumanCount(int64_t count);

// The end of an axis from 0 that shows `largest`: a round number of 1, 1.2, 1.6, 2, 2.5, 4, 5 or 8 times a power of ten
// that leaves a little room. 1 if `largest` is not positive.
double RoundAxisEnd(double largest);

}  // namespace moestro
