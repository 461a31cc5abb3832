// Replaces a glibc function. libstdc++'s random_device, linked but unused, needs a function that glibc has only since
// 2.36. With this replacement, the programs run with glibc 2.35 or later.
#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept { std::abort(); }
