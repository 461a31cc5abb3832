// A model of one GPU for tests: kernels compiled as plain C++ run on it thread by thread, and it checks what they do.
//
// The threads of a block are fibers of one host thread; blocks run one after the other. A thread runs until it waits
// for others: at a barrier of the block or at an operation of its whole warp (shuffle, vote, ldmatrix, mma). Kernel
// sources are compiled with -fsanitize=thread but linked with tsan_hooks.cc instead of that sanitizer's library, so
// that every load and store of a kernel comes here as it stands in the source. Reported, each with kernel, block and
// thread:
//   - access outside of all buffers of device memory (device_memory.h), to the byte; reads through a null pointer
//   - shared memory: access outside of what the launch asked for; reading what the block never wrote; two threads
//     touching the same byte, one of them writing, with no barrier between; touching what cp.async has in flight
//   - global memory: reading what nobody wrote; a block writing or reading what another block of the same launch wrote
//   - a barrier or warp operation that some threads reach at another place of the source, or never (deadlock)
// The first finding ends the launch, which then returns an error. Threads may launch and copy: they take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <string>

#include "tests/cuda/emulation/bank_log.h"

namespace moestro::emulation {

inline constexpr int kWarpLanes = 32;
inline constexpr int64_t kMaxThreads = 1024;
inline constexpr int64_t kMaxSharedBytes = 227 * 1024;  // of the largest GPU: launches for smaller ones ask for less

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

// Held by whoever uses the machine or its memory: RunGrid takes it for a whole launch.
std::recursive_mutex& Turn();

// Calls thread(context) once for every thread of the grid. False if something was found; then Finding() says what.
// A plain function, so that nothing but the kernel itself is compiled with the hooks of tsan_hooks.cc.
using ThreadBody = void (*)(const void* context);
bool RunGrid(const char* kernel, const LaunchShape& shape, ThreadBody thread, const void* context);

// While `use` is not null, bank conflicts of shared memory are added to it (bank_log.h): slow.
void CountBankConflicts(BankUse* use);

// The last finding, empty if there was none; TakeFinding also forgets it.
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

// An operation of the whole warp: every lane brings `in`; once all have come, combine(in of lane 0..31, out of lane
// 0..31) is called once. Orders no memory accesses.
using Combine = void (*)(const void* const* in, void* const* out);
void WarpOperation(const char* what, Site site, const void* in, void* out, Combine combine);
// The same, and accesses before it happen before those after it, within the warp.
void SyncWarp(Site site);

enum class Access { kRead, kWrite, kAtomic };
// Checks an access of the running thread. `whole_warp`: any lane may be the one whose registers it fills.
// `instruction`: tells accesses apart whose bank conflicts are counted.
void CheckAccess(const void* address, int64_t bytes, Access access, bool whole_warp = false,
                 const void* instruction = nullptr);
// For accesses by addresses that instructions require to be aligned.
void CheckAlignment(const char* what, const void* address, int64_t alignment);

// cp.async: the bytes arrive when the thread waits for the group, not before. valid_bytes of `from` are copied, the
// rest of the 16 is zeros.
void CopyAsync(void* shared, const void* global, int valid_bytes);
void CommitCopies();
// Until at most `groups` of the latest groups are still in flight.
void WaitCopies(int groups);

[[noreturn]] void Fail(const std::string& what);

}  // namespace moestro::emulation
