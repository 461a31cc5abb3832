// Products of a group of four warps (compute capability 9.0, as sm_90a alone has them), and all that orders them: one
// function per instruction, as in ptx.cuh. tests/cuda/emulation/include/wgmma_model.h has a model of each.
//
// D [64, N] += A [64, K] B [K, N]: A and D are in registers, B in shared memory. K is 32 bytes of A's elements. Warp w
// of the group has rows 16w .. 16w + 15, in the layout of ptx.cuh's mma of 16 x 8; d[4n + i] is its number i for
// columns 8n .. 8n + 7. B is [N][K], columns in rows of memory: SwizzledRows. Or [K][N]: Transposed.
//
// A product runs in the background. Until WaitProducts of its group nobody may touch its d, write its a, or write its
// part of shared memory. Accesses to d and a come before the products that follow a FenceProducts. What threads have
// written to shared memory is there for products after a FenceWrites of each of them, and a barrier.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/ptx.cuh"

#ifndef __CUDACC__
#include <wgmma_model.h>
#else

namespace moestro::cuda {

// The block's dynamic shared memory, aligned as swizzled rows need it.
__device__ __forceinline__ uint8_t* SwizzledShared() {
  extern __shared__ __align__(1024) uint8_t swizzled_shared[];
  return swizzled_shared;
}

// Whether the code is compiled for GPUs that have products.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasProducts = true;

__device__ __forceinline__ void FenceWrites() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void FenceProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Groups the products begun since the last call.
__device__ __forceinline__ void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// d (+)= a b: without `add` the product alone. b: the descriptor of the columns.
__device__ __forceinline__ void ProductE4M3(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void ProductE4M3(float (&d)[8], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, "
      "p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void ProductBf16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
// The same of B as [K][N], rows of 64 columns: as SwizzledRows has columns.
__device__ __forceinline__ void ProductBf16Transposed(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// The compiler must not move accesses to these before what precedes.
template <int kCount>
__device__ __forceinline__ void Hold(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void Hold(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
// Waits until at most kGroups of the latest groups are in flight. registers: operands that are free afterwards.
template <int kGroups, typename... Registers>
__device__ __forceinline__ void WaitProducts(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (Hold(registers), ...);
}

#else  // nothing is launched there that has them
constexpr bool kHasProducts = false;

__device__ __forceinline__ void FenceWrites() { __trap(); }
__device__ __forceinline__ void FenceProducts() { __trap(); }
__device__ __forceinline__ void CommitProducts() { __trap(); }
template <int kCount>
__device__ __forceinline__ void ProductE4M3(float (&)[kCount], const uint32_t (&)[4], uint64_t, bool) {
  __trap();
}
__device__ __forceinline__ void ProductBf16(float (&)[32], const uint32_t (&)[4], uint64_t, bool) { __trap(); }
__device__ __forceinline__ void ProductBf16Transposed(float (&)[32], const uint32_t (&)[4], uint64_t, bool) {
  __trap();
}
template <int kGroups, typename... Registers>
__device__ __forceinline__ void WaitProducts(Registers&...) {
  __trap();
}

#endif

}  // namespace moestro::cuda
#endif

namespace moestro::cuda {

constexpr int kSwizzledRowBytes = 128;
constexpr int kSwizzledAtomBytes = 8 * kSwizzledRowBytes;

// Where chunk c of 16 bytes of a row lies in it: eight neighbouring rows have a chunk in different banks.
__device__ __forceinline__ int SwizzledPlace(int row, int c) { return c ^ (row & 7); }

// The descriptor of columns of B as rows of 128 bytes, whose chunks lie in SwizzledPlace. `rows` is a multiple of
// kSwizzledAtomBytes in shared memory, plus the bytes of a row before the 32 that a product takes.
//   bits 0..13: the address; 16..29: not used with this swizzle, 1; 32..45: bytes from 8 rows to the next 8; all three
//   in units of 16; 62, 63: 1, swizzled in rows of 128 bytes
__device__ __forceinline__ uint64_t SwizzledRows(const void* rows) {
  return uint64_t{1} << 62 | uint64_t{kSwizzledAtomBytes / 16} << 32 | uint64_t{1} << 16 | SharedAddress(rows) >> 4;
}
// The same, `bytes` further. Of rows of B as [K][N], it is a whole number of kSwizzledAtomBytes.
__device__ __forceinline__ uint64_t Further(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes / 16);
}

// The accumulators of 64 columns that a kernel has as eight fragments: d[4n + i] is number i of fragment n.
__device__ __forceinline__ auto Accumulators(float (&first)[4]) -> float (&)[32] {
  return *reinterpret_cast<float(*)[32]>(&first);
}

}  // namespace moestro::cuda
