// Kernels with one bug each, and their correct forms. All but one run one block of 64 threads.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Every thread copies one element: 64 must exist.
LaunchResult LaunchCopy(const float* from, float* to);

enum class PlantedBegin { kRight, kReadsBefore, kWritesBefore, kOneReturnsBefore, kPrefetchesTooFar };
// The same, after it has prefetched what it reads.
LaunchResult LaunchBegin(PlantedBegin how, const float* from, float* to);

enum class Reversal { kRight, kNoBarrier, kOneReturns, kTwoPlaces, kReadsTooFar, kReadsUnwritten };
// out[i] = in[63 - i], through shared memory.
LaunchResult LaunchReversal(Reversal how, const float* in, float* out);

enum class PlantedStaging { kRight, kNoWait, kNoBarrierBeforeReuse, kEndsInFlight };
// out[i] = a[i] + b[i], with a and b in sequence through the same shared memory by cp.async. kEndsInFlight: right, but
// copies more that nobody waits for.
LaunchResult LaunchStaging(PlantedStaging how, const float* a, const float* b, float* out);

enum class Neighbours { kRight, kNoSyncWarp };
// out[i] = in[i ^ 1] + in[i], through shared memory, ordered within the warp only.
LaunchResult LaunchNeighbours(Neighbours how, const float* in, float* out);

// out [16, 8] = a [16, 16] b [16, 8] by one mma; the bug: the two registers of B are swapped.
LaunchResult LaunchProduct(bool exchanged, const uint16_t* a, const uint16_t* b, float* out);
// The same of FP8, A [16, 32] and B [32, 8].
LaunchResult LaunchFp8Product(bool exchanged, const uint8_t* a, const uint8_t* b, float* out);

enum class PlantedProduct {
  kRight,
  kReadsSums,          // before they are there
  kNoCommit,           // so the wait is for nothing
  kChangesOperand,     // before the wait
  kOverwritesColumns,  // before the wait
  kNoFence,            // between the operand's registers and the product
  kNoFenceOfWrites,    // to shared memory
  kNoBarrier,          // after these writes
  kUnaligned,          // the columns' atoms
  // The result is wrong:
  kNotSwizzled,
  kStride,
  kExchanged,  // two registers of A
};
// out [64, 16] = a [64, 32] b [16, 32] transposed, FP8, by four warps at once: a block of 128 threads.
LaunchResult LaunchGroupProduct(PlantedProduct how, const uint8_t* a, const uint8_t* b, float* out);

enum class PlantedFlag {
  kRight,
  kFirst,      // before the data
  kNoBarrier,  // between the data and the flag
};
// Every thread copies one element to memory of the host, [64]. Then a flag there becomes 1.
LaunchResult LaunchFlag(PlantedFlag how, const float* in, float* host, uint32_t* flag);

// Four threads copy four numbers each of what the host writes, [16]; the bug: by ordinary loads.
LaunchResult LaunchReadHost(bool ordinary, const float* host, float* out);

// Two blocks add to one number, with an atomic addition or (the bug) without.
LaunchResult LaunchSum(bool atomic, float* out);

enum class PlantedBytes {
  kRight,
  kReadsNeighbours,
  kWritesWhatOthersRead,
  kWritesOtherBlocks,
  kReadsUnwritten,
  kReadsOtherBlocks,
};
// Two blocks whose threads share words, but no byte: block b writes byte 2i + b of bytes, [128], as byte i of in.
// kRight also reads byte 129 of them, which the host has written.
LaunchResult LaunchBytes(PlantedBytes how, const uint8_t* in, uint8_t* bytes);

// Lanes below 16 shuffle at one place, the others at another.
LaunchResult LaunchDivergentShuffle(float* out);

// Every thread writes and reads element stride * i of shared memory: correct, but slow if lanes share a bank.
LaunchResult LaunchStrided(int stride, float* out);

}  // namespace moestro::cuda
