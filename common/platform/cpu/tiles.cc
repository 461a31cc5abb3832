#include "common/platform/cpu/tiles.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace moestro {
namespace {

// From the kernel's asm/prctl.h and fpu/types.h, which older headers lack.
constexpr int kRequestXcompPermission = 0x1023;
constexpr int kTileDataFeature = 18;

}  // namespace

bool AllowTiles() { return syscall(SYS_arch_prctl, kRequestXcompPermission, kTileDataFeature) == 0; }

}  // namespace moestro
