// The part of CUDA C++ that kernel sources use, in plain C++20 for the machine of tests/cuda/emulation. It replaces the
// toolkit's header of that name, because it comes first in the include path of the emulated kernels' target.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <source_location>

#include "tests/cuda/emulation/machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
// Not in templates and inline functions: the section cannot hold these together with others.
#define __shared__ static __attribute__((section("moestro_shared")))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
};
// Copied as a whole, as in hardware: the compiler would split the access.
struct alignas(16) uint4 {
  using Whole = unsigned __attribute__((vector_size(16), may_alias));
  unsigned x, y, z, w;
  uint4() = default;
  uint4(unsigned x_, unsigned y_, unsigned z_, unsigned w_) : x(x_), y(y_), z(z_), w(w_) {}
  uint4(const uint4& other) { *this = other; }
  uint4& operator=(const uint4& other) {
    Whole whole = *reinterpret_cast<const Whole*>(&other);
    __asm__("" : "+x"(whole));
    *reinterpret_cast<Whole*>(this) = whole;
    return *this;
  }
};
struct alignas(8) uint2 {
  using Whole = unsigned __attribute__((vector_size(8), may_alias));
  unsigned x, y;
  uint2(unsigned x_, unsigned y_) : x(x_), y(y_) {}
  uint2(const uint2& other) { *this = other; }
  uint2& operator=(const uint2& other) {
    *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const Whole*>(&other);
    return *this;
  }
};
struct alignas(8) float2 {
  using Whole = float __attribute__((vector_size(8), may_alias));
  float x, y;
  float2(float x_, float y_) : x(x_), y(y_) {}
  float2(const float2& other) { *this = other; }
  float2& operator=(const float2& other) {
    *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const Whole*>(&other);
    return *this;
  }
};
struct alignas(16) float4 {
  using Whole = float __attribute__((vector_size(16), may_alias));
  float x, y, z, w;
  float4() = default;
  float4(float x_, float y_, float z_, float w_) : x(x_), y(y_), z(z_), w(w_) {}
  float4(const float4& other) { *this = other; }
  float4& operator=(const float4& other) {
    *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const Whole*>(&other);
    return *this;
  }
};
inline uint2 make_uint2(unsigned x, unsigned y) { return uint2(x, y); }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return float2(x, y); }
inline float4 make_float4(float x, float y, float z, float w) { return float4(x, y, z, w); }

struct CUstream_st;
using cudaStream_t = CUstream_st*;

#define threadIdx (::moestro::emulation::ThreadIndex())
#define blockIdx (::moestro::emulation::BlockIndex())
#define blockDim (::moestro::emulation::BlockExtent())
#define gridDim (::moestro::emulation::GridExtent())

using std::max;
using std::min;

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
// Byte i of the result is byte s of the eight bytes (b : a), with s the i-th digit of the selector.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i) & 7;
    result |= static_cast<unsigned>(bytes >> (8 * s) & 0xff) << (8 * i);
  }
  return result;
}

// ---- Barriers and operations of a warp -----------------------------------------------------------------------------

inline void __syncthreads(std::source_location site = std::source_location::current()) {
  ::moestro::emulation::SyncBlock(site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, std::source_location site = std::source_location::current()) {
  if (mask != 0xffffffffu) ::moestro::emulation::Fail("__syncwarp of some lanes is not modelled");
  ::moestro::emulation::SyncWarp(site);
}

namespace moestro::emulation {

template <typename T>
struct ShuffleInput {
  T value;
  int source;
};

template <typename T>
T Shuffle(const char* what, unsigned mask, T value, int source, std::source_location site) {
  if (mask != 0xffffffffu) Fail("a shuffle of some lanes is not modelled");
  const ShuffleInput<T> in{value, source};
  T out{};
  WarpOperation(what, site, &in, &out, [](const void* const* ins, void* const* outs) {
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const int from = static_cast<const ShuffleInput<T>*>(ins[lane])->source;
      *static_cast<T*>(outs[lane]) = static_cast<const ShuffleInput<T>*>(ins[from])->value;
    }
  });
  return out;
}

inline unsigned Ballot(const char* what, unsigned mask, bool vote, std::source_location site) {
  if (mask != 0xffffffffu) Fail("a vote of some lanes is not modelled");
  unsigned out = 0;
  WarpOperation(what, site, &vote, &out, [](const void* const* ins, void* const* outs) {
    unsigned votes = 0;
    for (int lane = 0; lane < kWarpLanes; ++lane) votes |= (*static_cast<const bool*>(ins[lane]) ? 1u : 0u) << lane;
    for (int lane = 0; lane < kWarpLanes; ++lane) *static_cast<unsigned*>(outs[lane]) = votes;
  });
  return out;
}

}  // namespace moestro::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int = 32,
              std::source_location site = std::source_location::current()) {
  return ::moestro::emulation::Shuffle("__shfl_sync", mask, value, source & 31, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32,
                  std::source_location site = std::source_location::current()) {
  return ::moestro::emulation::Shuffle("__shfl_xor_sync", mask, value, (::moestro::emulation::Lane() ^ lanes) & 31,
                                       site);
}
// A lane below `lanes` keeps its own value.
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int = 32,
                 std::source_location site = std::source_location::current()) {
  const int lane = ::moestro::emulation::Lane();
  const int from = lane - static_cast<int>(lanes);
  return ::moestro::emulation::Shuffle("__shfl_up_sync", mask, value, from < 0 ? lane : from, site);
}
inline unsigned __ballot_sync(unsigned mask, bool vote, std::source_location site = std::source_location::current()) {
  return ::moestro::emulation::Ballot("__ballot_sync", mask, vote, site);
}
inline bool __any_sync(unsigned mask, bool vote, std::source_location site = std::source_location::current()) {
  return ::moestro::emulation::Ballot("__any_sync", mask, vote, site) != 0;
}

// ---- Atomics: threads never run concurrently, so these only mark accesses as atomic for the checks

template <typename T>
__attribute__((no_sanitize("thread"))) T atomicAdd(T* address, T value) {
  ::moestro::emulation::CheckAccess(address, sizeof(T), ::moestro::emulation::Access::kAtomic);
  const T before = *address;
  *address = before + value;
  return before;
}
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicMax(T* address, T value) {
  ::moestro::emulation::CheckAccess(address, sizeof(T), ::moestro::emulation::Access::kAtomic);
  const T before = *address;
  *address = before > value ? before : value;
  return before;
}
