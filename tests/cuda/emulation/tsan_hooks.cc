// The functions that code compiled with -fsanitize=thread calls at every load and store, without the sanitizer's
// library. Kernels' accesses go to the machine that runs them; other accesses are ignored.
#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulation/machine.h"

namespace {

using moestro::emulation::Access;
using moestro::emulation::IsOnStack;

// Inlined, so that the return address is the kernel's.
[[gnu::always_inline]] inline void Read(const void* p, int64_t bytes) {
  if (!IsOnStack(p)) {
    moestro::emulation::CheckAccess(p, bytes, Access::kRead, false, __builtin_return_address(0));
  } else if (moestro::emulation::watches_registers.load(std::memory_order_relaxed)) {
    moestro::emulation::CheckRegisters(p, bytes, false);
  }
}
[[gnu::always_inline]] inline void Write(const void* p, int64_t bytes) {
  if (!IsOnStack(p)) {
    moestro::emulation::CheckAccess(p, bytes, Access::kWrite, false, __builtin_return_address(0));
  } else if (moestro::emulation::watches_registers.load(std::memory_order_relaxed)) {
    moestro::emulation::CheckRegisters(p, bytes, true);
  }
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(void* p) { Read(p, 1); }
void __tsan_read2(void* p) { Read(p, 2); }
void __tsan_read4(void* p) { Read(p, 4); }
void __tsan_read8(void* p) { Read(p, 8); }
void __tsan_read16(void* p) { Read(p, 16); }
void __tsan_write1(void* p) { Write(p, 1); }
void __tsan_write2(void* p) { Write(p, 2); }
void __tsan_write4(void* p) { Write(p, 4); }
void __tsan_write8(void* p) { Write(p, 8); }
void __tsan_write16(void* p) { Write(p, 16); }
void __tsan_unaligned_read2(const void* p) { Read(p, 2); }
void __tsan_unaligned_read4(const void* p) { Read(p, 4); }
void __tsan_unaligned_read8(const void* p) { Read(p, 8); }
void __tsan_unaligned_read16(const void* p) { Read(p, 16); }
void __tsan_unaligned_write2(void* p) { Write(p, 2); }
void __tsan_unaligned_write4(void* p) { Write(p, 4); }
void __tsan_unaligned_write8(void* p) { Write(p, 8); }
void __tsan_unaligned_write16(void* p) { Write(p, 16); }
void __tsan_read_range(void* p, size_t bytes) { Read(p, static_cast<int64_t>(bytes)); }
void __tsan_write_range(void* p, size_t bytes) { Write(p, static_cast<int64_t>(bytes)); }

}  // extern "C"
