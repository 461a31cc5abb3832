// Models of the wrappers in common/kernels/cuda/wgmma.cuh, as the PTX ISA documents each instruction (chapter
// "Asynchronous warpgroup level matrix multiply-accumulate instructions"). wgmma.cuh includes it if the compiler is not
// nvcc. The machine multiplies (Product in ../machine.h).
#pragma once

#include <ptx_model.h>

#include <cstdint>
#include <source_location>

#include "tests/cuda/emulation/machine.h"

namespace moestro::cuda {

inline constexpr bool kHasProducts = true;

inline uint8_t* SwizzledShared() { return emulation::DynamicShared(); }
inline uint32_t SharedAddress(const void* p) { return emulation::SharedAddress(p); }

inline void FenceWrites() { emulation::FenceProxy(); }
inline void FenceProducts() { emulation::FenceProducts(); }
inline void CommitProducts() { emulation::CommitProducts(); }
template <int kGroups, typename... Registers>
inline void WaitProducts(Registers&...) {
  emulation::WaitProducts(kGroups);
}

template <int kCount>
inline void ProductE4M3(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool add,
                        std::source_location site = std::source_location::current()) {
  emulation::Product({"wgmma.e4m3", 2 * kCount, 8, E4M3Value, CutToFloat}, site, d, a, b, add);
}
inline void ProductBf16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add,
                        std::source_location site = std::source_location::current()) {
  emulation::Product({"wgmma.bf16", 64, 16, Bf16Value, CutToFloat}, site, d, a, b, add);
}
inline void ProductBf16Transposed(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add,
                                  std::source_location site = std::source_location::current()) {
  emulation::Product({"wgmma.bf16, transposed", 64, 16, Bf16Value, CutToFloat, true}, site, d, a, b, add);
}

}  // namespace moestro::cuda
