// Numbers as reports show them.
#pragma once

#include <cstdint>
#include <string>

namespace moestro {

// "0.97", "12.3", "1234": three or more significant digits; "-" if not finite.
std::string ShortNumber(double value);

// "1.50 GiB", "37 B"
std::string HumanBytes(int64_t bytes);
// "671.026 B", "28.3 M", "12"
std::string HumanCount(int64_t count);

// The end of an axis that starts at 0 and shows `largest`: 1, 1.2, 1.6, 2, 2.5, 4, 5 or 8 times a power of ten, with a
// small margin. 1 if `largest` is not positive.
double RoundAxisEnd(double largest);

}  // namespace moestro
