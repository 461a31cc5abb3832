// A model of one GPU for tests: runs kernels compiled as plain C++ thread by thread, and checks them.
//
// The threads of a block are fibers of one host thread; blocks run in sequence. A thread runs until it waits for
// others: at a barrier of the block or at an operation of its whole warp (shuffle, vote, ldmatrix, mma). Kernel sources
// are compiled with -fsanitize=thread but linked with tsan_hooks.cc instead of the sanitizer's library. So every load
// and store of a kernel arrives here as written in the source. It reports, with kernel, block and thread:
//   - access outside all buffers of device memory (global_memory.h), exact to the byte; reads through a null pointer
//   - shared memory: access beyond the launch's request; reading bytes that the block never wrote; two threads
//     accessing the same byte, one of them writing, without a barrier in between; accessing bytes that cp.async has in
//     flight; writing bytes that wgmma is reading
//   - wgmma: reading bytes whose writer has not fenced them; accessing its registers too early (async_products.h)
//   - global memory: reading unwritten bytes; a block accessing bytes that another block of the same launch wrote
//   - a thread that accesses global or host memory before BeginKernel, or ends without it: on GPUs that start kernels
//     before the one before has ended, it would not have waited
//   - host memory: a write that no barrier orders before the block's flag, or one behind it; an ordinary load of what
//     threads of the host write while kernels run
//   - a barrier or warp operation that some threads reach at another place of the source, or never (deadlock)
// The first finding ends the launch, which then returns an error. Threads may launch and copy: they take turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <string>

#include "tests/cuda/emulation/bank_log.h"

namespace moestro::emulation {

inline constexpr int kWarpLanes = 32;
inline constexpr int64_t kMaxThreads = 1024;
inline constexpr int64_t kMaxSharedBytes = 227 * 1024;  // the largest GPU's limit; launches for smaller ones need less

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Extent3 grid;
  Extent3 block;
  int64_t shared_bytes = 0;
};

// Held by the user of the machine or its memory: RunGrid takes it for a whole launch.
std::recursive_mutex& Turn();

// Calls thread(context) once for every thread of the grid. False on a finding; Finding() describes it. A plain
// function, so that only the kernel itself is compiled with the hooks of tsan_hooks.cc.
using ThreadBody = void (*)(const void* context);
bool RunGrid(const char* kernel, const LaunchShape& shape, ThreadBody thread, const void* context);

// Of the last call of RunGrid for that kernel; a grid of nothing if there was none.
LaunchShape LastShape(const std::string& kernel);

// While `use` is not null, adds bank conflicts of shared memory to it (bank_log.h): slow.
void CountBankConflicts(BankUse* use);

// The last finding, empty if none; TakeFinding also clears it.
std::string Finding();
std::string TakeFinding();

// ---- For the running thread of a kernel only -----------------------------------------------------------------------

Index3 ThreadIndex();
Index3 BlockIndex();
Extent3 BlockExtent();
Extent3 GridExtent();
int Lane();
uint8_t* DynamicShared();

using Site = std::source_location;

void SyncBlock(Site site);

// An operation of the whole warp: every lane passes `in`; once all have arrived, combine(in of lane 0..31, out of lane
// 0..31) is called once. Does not order memory accesses.
using Combine = void (*)(const void* const* in, void* const* out);
void WarpOperation(const char* what, Site site, const void* in, void* out, Combine combine);
// The same, but accesses before it happen before those after it, within the warp.
void SyncWarp(Site site);

// Where the running thread's stack begins; 0 if no thread runs.
extern std::atomic<uintptr_t> running_stack;
// Not a power of two: what threads of a warp use most would then lie in the same few sets of the caches.
inline constexpr uintptr_t kStackBytes = 64 * 1024 + 17 * 64;
// Most accesses are to the thread's own stack, which needs no check. Any thread of the host may ask.
inline bool IsOnStack(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - running_stack.load(std::memory_order_relaxed) < kStackBytes;
}

// Whether the running kernel has registers that products may hold (async_products.h): then accesses to stacks go to
// CheckRegisters.
extern std::atomic<bool> watches_registers;
void CheckRegisters(const void* address, int64_t bytes, bool write);

enum class Access { kRead, kWrite, kAtomic };
// Checks an access of the running thread beyond its stack. `whole_warp`: any lane may be the one whose registers it
// fills. `instruction`: identifies accesses for counting bank conflicts.
void CheckAccess(const void* address, int64_t bytes, Access access, bool whole_warp = false,
                 const void* instruction = nullptr);
// For accesses with addresses that instructions require to be aligned.
void CheckAlignment(const char* what, const void* address, int64_t alignment);

// cp.async of `bytes`, 4, 8 or 16: they arrive when the thread waits for the group, not earlier. Copies valid_bytes of
// `from` and zeroes the rest.
void CopyAsync(void* shared, const void* global, int bytes, int valid_bytes);
void CommitCopies();
// Waits until at most `groups` of the latest groups are in flight.
void WaitCopies(int groups);

// wgmma: 4 warps multiply A [64, depth], in registers of `bits` bits an element, with B [depth, columns] in shared
// memory. The result is there once the thread has waited for the product's group.
struct ProductKind {
  const char* what;
  int columns;
  int bits;
  double (*value)(uint32_t bits);
  float (*round)(double sum);
  bool transposed = false;  // B's rows of memory are its rows, not its columns
};
void Product(const ProductKind& kind, Site site, float* d, const uint32_t* a, uint64_t columns, bool add);
void FenceProducts();
void CommitProducts();
// Waits until at most `groups` of the latest groups are in flight.
void WaitProducts(int groups);
// fence.proxy.async: products may read what the thread has written to shared memory.
void FenceProxy();
// Memory is accessible to the running thread from then on.
void BeginKernel();
// Checks that there is memory.
void Prefetch(const void* address);
// A flag in host memory, after which the block writes nothing there but flags, and before which barriers order what its
// threads have written there.
void StoreFlag(uint32_t* flag, uint32_t value);
// Four numbers, which threads of the host may write while kernels run: the only load of these.
void LoadFromHost(const float* from, float* to);
// As descriptors have it.
uint32_t SharedAddress(const void* shared);

[[noreturn]] void Fail(const std::string& what);

}  // namespace moestro::emulation
