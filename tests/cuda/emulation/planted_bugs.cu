#include <cuda_runtime.h>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/wgmma.cuh"
#include "tests/cuda/emulation/planted_bugs.h"

namespace moestro::cuda {
namespace {

constexpr int kThreads = 64;

__global__ void Copy(const float* from, float* to) {
  BeginKernel();
  to[threadIdx.x] = from[threadIdx.x];
}

__global__ void Begin(PlantedBegin how, const float* from, float* to) {
  const unsigned i = threadIdx.x;
  Prefetch(from + i + (how == PlantedBegin::kPrefetchesTooFar ? 1 : 0));
  if (how == PlantedBegin::kOneReturnsBefore && i == 40) return;
  if (how == PlantedBegin::kWritesBefore) to[i] = 1.0f;
  const float before = how == PlantedBegin::kReadsBefore ? from[i] : 0.0f;
  BeginKernel();
  to[i] = before + from[i];
}

__global__ void Reverse(Reversal how, const float* in, float* out) {
  BeginKernel();
  __shared__ float numbers[kThreads];
  const unsigned i = threadIdx.x;
  if (how != Reversal::kReadsUnwritten || i != 5) numbers[i] = in[i];
  if (how == Reversal::kOneReturns && i == 40) return;
  if (how == Reversal::kTwoPlaces && i < 32) {
    __syncthreads();
  } else if (how != Reversal::kNoBarrier) {
    __syncthreads();
  }
  out[i] = numbers[how == Reversal::kReadsTooFar ? kThreads + i : kThreads - 1 - i];
}

__global__ void Stage(PlantedStaging how, const float* a, const float* b, float* out) {
  BeginKernel();
  float* const numbers = reinterpret_cast<float*>(DynamicShared());
  const unsigned i = threadIdx.x;
  float sum = 0;
  for (const float* from : {a, b}) {
    if (i < kThreads / 4) CopyAsync16(numbers + 4 * i, from + 4 * i, 16);
    CommitCopies();
    if (how != PlantedStaging::kNoWait) WaitCopies<0>();
    __syncthreads();
    sum += numbers[i];
    if (how != PlantedStaging::kNoBarrierBeforeReuse) __syncthreads();
  }
  if (how == PlantedStaging::kEndsInFlight) CopyAsync4(numbers + i, a + i, 4);
  out[i] = sum;
}

__global__ void Bytes(PlantedBytes how, const uint8_t* in, volatile uint8_t* bytes) {
  BeginKernel();
  volatile uint8_t* const shared = DynamicShared();
  volatile uint32_t* const words = reinterpret_cast<uint32_t*>(DynamicShared() + kThreads);
  volatile uint8_t* const of_words = DynamicShared() + kThreads;
  const unsigned i = threadIdx.x, block = blockIdx.x, third = 2 * kThreads;
  words[i] = in[i] << 8;
  shared[i] = of_words[4 * i + 1];
  uint8_t own = shared[how == PlantedBytes::kReadsNeighbours ? i & ~1u : i];
  __syncthreads();
  if (how == PlantedBytes::kWritesWhatOthersRead) {
    if (i == 40) own = of_words[1];
    if (i == 0) of_words[1] = static_cast<uint8_t>(words[0]);
  }
  if (how == PlantedBytes::kReadsOtherBlocks && block == 1 && i == 7) own = bytes[2 * i];
  if (how == PlantedBytes::kReadsUnwritten && i == 7) own = bytes[2 * i + 1];
  const unsigned at = 2 * i + (how == PlantedBytes::kWritesOtherBlocks && i == 7 ? 0 : block);
  bytes[at] = own;
  if (bytes[at] != own) bytes[at] = 0;
  if (how == PlantedBytes::kRight && block == 1 && i == 7) {
    bytes[third] = own;
    bytes[third] = bytes[third + 1];
  }
}

__global__ void AddNeighbours(Neighbours how, const float* in, float* out) {
  BeginKernel();
  float* const numbers = reinterpret_cast<float*>(DynamicShared());
  const unsigned i = threadIdx.x;
  numbers[i] = in[i];
  if (how == Neighbours::kRight) __syncwarp();
  out[i] = numbers[i] + numbers[i ^ 1];
}

__global__ void Multiply(bool exchanged, const uint16_t* a, const uint16_t* b, float* out) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const auto pair = [](uint16_t low, uint16_t high) { return uint32_t{low} | uint32_t{high} << 16; };
  uint32_t a_registers[4], b_registers[2];
  for (int r = 0; r < 4; ++r) {
    const uint16_t* at = a + (g + r % 2 * 8) * 16 + r / 2 * 8 + 2 * t;
    a_registers[r] = pair(at[0], at[1]);
  }
  for (int r = 0; r < 2; ++r) {
    const uint16_t* at = b + (r * 8 + 2 * t) * 8 + g;
    b_registers[exchanged ? 1 - r : r] = pair(at[0], at[8]);
  }
  float d[4] = {};
  MmaBf16(d, a_registers, b_registers);
  if (threadIdx.x >= 32) return;
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

// Of FP8: a lane's four codes of a register are neighbours.
__global__ void MultiplyFp8(bool exchanged, const uint8_t* a, const uint8_t* b, float* out) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const auto four = [](const uint8_t* at, int stride) {
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) codes |= uint32_t{at[i * stride]} << (8 * i);
    return codes;
  };
  uint32_t a_registers[4], b_registers[2];
  for (int r = 0; r < 4; ++r) a_registers[r] = four(a + (g + r % 2 * 8) * 32 + r / 2 * 16 + 4 * t, 1);
  for (int r = 0; r < 2; ++r) b_registers[exchanged ? 1 - r : r] = four(b + (r * 16 + 4 * t) * 8 + g, 8);
  float d[4] = {};
  MmaE4M3(d, a_registers, b_registers);
  if (threadIdx.x >= 32) return;
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

__global__ void MultiplyByGroup(PlantedProduct how, const uint8_t* a, const uint8_t* b, float* out) {
  BeginKernel();
  using enum PlantedProduct;
  constexpr int kDepth = 32, kColumns = 16;
  uint8_t* const shared = SwizzledShared() + (how == kUnaligned ? kSwizzledRowBytes : 0);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4, t = lane % 4;
  const auto place = [&](int column, int chunk) {
    return shared + column * kSwizzledRowBytes + (how == kNotSwizzled ? chunk : SwizzledPlace(column, chunk)) * 16;
  };
  if (thread < 2 * kColumns) {
    *reinterpret_cast<uint4*>(place(thread / 2, thread % 2)) = reinterpret_cast<const uint4*>(b)[thread];
  }
  uint32_t operand[4];
  for (int r = 0; r < 4; ++r) {
    const int from = how == kExchanged ? r ^ 2 : r;
    operand[r] =
        *reinterpret_cast<const uint32_t*>(a + (thread / 32 * 16 + g + from % 2 * 8) * kDepth + from / 2 * 16 + 4 * t);
  }
  if (how != kNoFenceOfWrites) FenceWrites();
  if (how != kNoBarrier) __syncthreads();
  float sums[8];
  FenceProducts();
  if (how == kNoFence) operand[0] ^= 1;
  ProductE4M3(sums, operand, SwizzledRows(shared) - (how == kStride ? uint64_t{kSwizzledAtomBytes / 16} << 32 : 0),
              false);
  if (how != kNoCommit) CommitProducts();
  if (how == kChangesOperand) operand[0] ^= 1;
  if (how == kOverwritesColumns) {
    __syncthreads();
    if (thread == 0) *place(0, 0) = 0;
  }
  if (how != kReadsSums) WaitProducts<0>(sums, operand);
  for (int i = 0; i < 8; ++i) {
    out[(thread / 32 * 16 + g + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + 2 * t + i % 2] = sums[i];
  }
  if (how == kReadsSums) WaitProducts<0>(sums, operand);
}

__global__ void Tell(PlantedFlag how, const float* in, float* host, uint32_t* flag) {
  BeginKernel();
  const unsigned i = threadIdx.x;
  if (how == PlantedFlag::kFirst && i == 0) StoreFlag(flag, 1);
  host[i] = in[i];
  if (how != PlantedFlag::kNoBarrier) __syncthreads();
  if (how != PlantedFlag::kFirst && i == 63) StoreFlag(flag, 1);
}

__global__ void ReadHost(bool ordinary, const float* host, float* out) {
  BeginKernel();
  const unsigned i = 4 * threadIdx.x;
  if (i >= 16) return;
  *reinterpret_cast<float4*>(out + i) = ordinary ? *reinterpret_cast<const float4*>(host + i) : LoadFromHost(host + i);
}

__global__ void Sum(bool atomic, float* out) {
  BeginKernel();
  if (threadIdx.x != 0) return;
  if (atomic) {
    atomicAdd(out, 1.0f);
  } else {
    out[0] += 1.0f;
  }
}

__global__ void DivergentShuffle(float* out) {
  BeginKernel();
  const unsigned i = threadIdx.x;
  float value = static_cast<float>(i);
  if (i % 32 < 16) {
    value = __shfl_xor_sync(0xffffffffu, value, 1);
  } else {
    value = __shfl_xor_sync(0xffffffffu, value, 2);
  }
  out[i] = value;
}

__global__ void Strided(int stride, float* out) {
  BeginKernel();
  volatile float* const numbers = reinterpret_cast<float*>(DynamicShared());
  const unsigned i = threadIdx.x;
  numbers[stride * i] = 1.0f;
  __syncthreads();
  const float read = numbers[stride * i];
  __syncthreads();
  out[i] = read;
}

}  // namespace

LaunchResult LaunchCopy(const float* from, float* to) {
  return Launch("copy", Copy, dim3(1), dim3(kThreads), 0, nullptr, from, to);
}
LaunchResult LaunchBegin(PlantedBegin how, const float* from, float* to) {
  return Launch("begin", Begin, dim3(1), dim3(kThreads), 0, nullptr, how, from, to);
}
LaunchResult LaunchReversal(Reversal how, const float* in, float* out) {
  return Launch("reversal", Reverse, dim3(1), dim3(kThreads), 0, nullptr, how, in, out);
}
LaunchResult LaunchStaging(PlantedStaging how, const float* a, const float* b, float* out) {
  return Launch("staging", Stage, dim3(1), dim3(kThreads), kThreads * 4, nullptr, how, a, b, out);
}
LaunchResult LaunchNeighbours(Neighbours how, const float* in, float* out) {
  return Launch("neighbours", AddNeighbours, dim3(1), dim3(kThreads), kThreads * 4, nullptr, how, in, out);
}
LaunchResult LaunchProduct(bool exchanged, const uint16_t* a, const uint16_t* b, float* out) {
  return Launch("product", Multiply, dim3(1), dim3(kThreads), 0, nullptr, exchanged, a, b, out);
}
LaunchResult LaunchFp8Product(bool exchanged, const uint8_t* a, const uint8_t* b, float* out) {
  return Launch("product", MultiplyFp8, dim3(1), dim3(kThreads), 0, nullptr, exchanged, a, b, out);
}
LaunchResult LaunchGroupProduct(PlantedProduct how, const uint8_t* a, const uint8_t* b, float* out) {
  return Launch("group product", MultiplyByGroup, dim3(1), dim3(128), 3 * kSwizzledAtomBytes, nullptr, how, a, b, out);
}
LaunchResult LaunchFlag(PlantedFlag how, const float* in, float* host, uint32_t* flag) {
  return Launch("flag", Tell, dim3(1), dim3(kThreads), 0, nullptr, how, in, host, flag);
}
LaunchResult LaunchReadHost(bool ordinary, const float* host, float* out) {
  return Launch("read host", ReadHost, dim3(1), dim3(kThreads), 0, nullptr, ordinary, host, out);
}
LaunchResult LaunchSum(bool atomic, float* out) {
  return Launch("sum", Sum, dim3(2), dim3(kThreads), 0, nullptr, atomic, out);
}
LaunchResult LaunchBytes(PlantedBytes how, const uint8_t* in, uint8_t* bytes) {
  return Launch("bytes", Bytes, dim3(2), dim3(kThreads), 5 * kThreads, nullptr, how, in, bytes);
}
LaunchResult LaunchDivergentShuffle(float* out) {
  return Launch("shuffle", DivergentShuffle, dim3(1), dim3(kThreads), 0, nullptr, out);
}

LaunchResult LaunchStrided(int stride, float* out) {
  return Launch("strided", Strided, dim3(1), dim3(kThreads), int64_t{kThreads} * stride * 4, nullptr, stride, out);
}

}  // namespace moestro::cuda
