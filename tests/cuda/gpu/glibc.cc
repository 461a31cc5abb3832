// libstdc++'s random_device is linked with the rest of it, though nothing here uses it, and asks for a function that
// glibc has only since 2.36. Without that the programs run wherever glibc is 2.35 or later.
#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept { std::abort(); }
