// All PTX of the kernels: one function per instruction. tests/cuda/emulation/include/ptx_model.h has a model of each
// under the same name; tests/cuda compares both on a GPU. Fragment layouts are those of the PTX ISA; with g = lane / 4
// and t = lane % 4:
//   mma m16n8k16, BF16   a[r]: row g + 8 (r % 2), columns 8 (r / 2) + 2t, + 1     b[r]: column g, rows 8r + 2t, + 1
//   mma m16n8k32, E4M3   a[r]: row g + 8 (r % 2), columns 16 (r / 2) + 4t .. + 3  b[r]: column g, rows 16r + 4t .. + 3
//   mma m16n8k32, S8     the same
//   all                  d[i]: row g + 8 (i / 2), column 2t + i % 2
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifndef __CUDACC__
#include <ptx_model.h>
#else

namespace moestro::cuda {

// The block's dynamic shared memory, aligned to 128 bytes.
__device__ __forceinline__ uint8_t* DynamicShared() {
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  return dynamic_shared;
}

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// What every kernel begins with, in all of its threads: it may have been started before the one before it in the stream
// has ended (launch.cuh). Waits until that one has, and its memory is there. Then the next one may be started. So a
// kernel that has ended is behind all before it.
__device__ __forceinline__ void BeginKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Brings the line of device memory that holds `p` to L2. The only thing that a kernel may do with memory before
// BeginKernel: nothing depends on it.
__device__ __forceinline__ void Prefetch([[maybe_unused]] const void* p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// `to` becomes the 16 bytes at `from` in global memory, if `wanted`; if not, it stays as it is. The registers are those
// of `to`: an ordinary load under a condition takes others, and a copy afterwards.
__device__ __forceinline__ void LoadIf(bool wanted, const void* from, uint4& to) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
               : "l"(from), "r"(wanted ? 1 : 0));
}

// Four numbers of host memory that threads of the host write while kernels run, or of device memory: what is there now,
// never what a cache has kept. `from` is a multiple of 16.
__device__ __forceinline__ float4 LoadFromHost(const float* from) {
  float4 numbers;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(numbers.x), "=f"(numbers.y), "=f"(numbers.z), "=f"(numbers.w)
               : "l"(from)
               : "memory");
  return numbers;
}

// Copies `valid_bytes` (0..16) bytes from global to shared memory in the background, and zeroes the rest of the 16.
// Both addresses are multiples of 16; with 0 valid bytes `global` is not read. Bypasses L1, since the data is read
// once.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid_bytes)
               : "memory");
}
// The same of 4 bytes: 0 or 4 are valid. Through L1, which keeps the rest of their sector for the copies that follow.
__device__ __forceinline__ void CopyAsync4(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid_bytes)
               : "memory");
}
// The same of 8 bytes.
__device__ __forceinline__ void CopyAsync8(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid_bytes)
               : "memory");
}
// Groups the copies begun since the last call.
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kGroups of this thread's latest groups are in flight. Other threads' copies need a barrier
// afterwards.
template <int kGroups>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Four 8 x 8 matrices of 16-bit values: lane 8m + i points to row i of matrix m (16 bytes, aligned). registers[m] is
// row g, columns 2t and 2t + 1 of matrix m; transposed: column g, rows 2t and 2t + 1.
__device__ __forceinline__ void LoadMatrixX4(uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ __forceinline__ void LoadMatrixX4Transposed(uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// d += a b
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Where the chip has it (compute capability 12.0 and 12.1), as an mma with scales, which are all 1: it has twice the
// rate. Compute capability 8.0 has no products of FP8; nothing is launched there that has them.
__device__ __forceinline__ void MmaE4M3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200)
  constexpr uint32_t kOne = 0x7f7f7f7fu;  // four E8M0 scales
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%11, %11}, %10, {%11, %11};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(kOne), "h"(uint16_t{0}));
#elif __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// The same of signed bytes, exact modulo 2^32.
__device__ __forceinline__ void MmaS8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Rounds two numbers to nearest even, `low` in the lower half. NaN becomes 0x7fff.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// Two numbers in E4M3, rounded to nearest even, `low` in the lowest byte. Beyond 448 they become 448.
__device__ __forceinline__ uint32_t PackE4M3(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#else
  __trap();
#endif
}
// a b + c of two pairs of BF16 values, subnormals included, rounded once.
__device__ __forceinline__ uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// The greater magnitude of a and b, of two pairs of BF16 values, with either sign. REQUIRES: a is 0 or a result of
// this; no NaN. One instruction where there is xorsign: of several abs and max ptxas makes a max of three numbers,
// which cannot take magnitudes.
__device__ __forceinline__ uint32_t MaxAbsBf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
#if __CUDA_ARCH__ >= 860
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#else
  asm("{ .reg .b32 t; abs.bf16x2 t, %2; max.bf16x2 %0, %1, t; }" : "=r"(d) : "r"(a), "r"(b));
#endif
  return d;
}
// Bytes kFirst and kFirst + 1 as two signed numbers of 16 bits.
template <int kFirst>
__device__ __forceinline__ uint32_t SignedBytes(uint32_t bytes) {
  constexpr int kSelector = (kFirst | (kFirst | 8) << 4) * 0x101 + 0x1100;
  uint32_t d;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(d) : "r"(bytes), "n"(kSelector));
  return d;
}
// Writes a flag in registered memory of the host, where a thread waits for it. When that thread sees the flag, it also
// sees what the calling thread has written there before, and what other threads of the block have if a barrier lies
// between.
__device__ __forceinline__ void StoreFlag(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
// 2^x, relative error at most 2^-22; results below the smallest normal number are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace moestro::cuda
#endif
