// Formats of blocks (common/tensor/block_format.h has their bytes) in registers: codes as BF16 numbers, scales and mins
// as F32, all exact.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/f16.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/tensor/block_format.h"

namespace moestro::cuda {

// What is subtracted from an unsigned code.
constexpr int ZeroPoint(DType type) {
  if (type == DType::kQ4_0 || type == DType::kI4G32 || type == DType::kI4G128) return 8;
  if (type == DType::kQ5_0) return 16;
  return type == DType::kQ6K ? 32 : 0;
}

// Constants of a format: device code may not call the functions that tell them.
template <DType kType>
struct BlockConstants {
  static constexpr int kBits = static_cast<int>(FormatOf(kType).code_bits);
  static constexpr int kBlock = static_cast<int>(FormatOf(kType).block);
  static constexpr int kSubBlock = static_cast<int>(FormatOf(kType).sub_block);
  static constexpr int kHeaderBytes = static_cast<int>(FormatOf(kType).header_bytes);
  static constexpr int kPackedBytes = static_cast<int>(FormatOf(kType).packed_block_bytes());
  static constexpr bool kHasMins = FormatOf(kType).has_mins;
  static constexpr bool kHasZeroPoints = HasZeroPoints(kType);
  static constexpr bool kHasF16Scales = HasF16Scales(kType);
  static constexpr uint32_t kMinus = 0xc300u | static_cast<uint32_t>(ZeroPoint(kType));  // -(128 + zero point), BF16
};

// Two codes of up to 7 bits, in the low bits of each half. Below 128's BF16 mantissa they are 128 + code.
template <DType kType>
__device__ __forceinline__ uint32_t ExpandCodes(uint32_t codes) {
  constexpr uint32_t kMinus = BlockConstants<kType>::kMinus;
  return FmaBf16x2(codes | 0x43004300u, 0x3f803f80u, kMinus | kMinus << 16);
}

// Two signed codes of 8 bits, each in the low byte of a half. The low 7 bits are 128 + them; the sign bit makes -128 a
// -256.
__device__ __forceinline__ uint32_t ExpandSigned(uint32_t codes) {
  return FmaBf16x2((codes & 0x007f007fu) | 0x43004300u, 0x3f803f80u, (codes & 0x00800080u) | 0xc300c300u);
}

// Pair `pair` (0 to 3) of the eight E2M1 codes of a word. Exponent and mantissa, moved to BF16's positions, with the
// sign, are the value times 2^-126; that holds for the subnormal 0.5 too.
__device__ __forceinline__ uint32_t ExpandE2M1(uint32_t word, int pair) {
  const uint32_t codes = word >> 4 * pair;
  return FmaBf16x2((codes & 0x00080008u) << 12 | (codes & 0x00070007u) << 6, 0x7e807e80u, 0x80008000u);
}

__device__ __forceinline__ uint32_t Word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
// The i-th of four halves.
__device__ __forceinline__ uint32_t Half(const uint2& halves, int i) {
  return (i < 2 ? halves.x : halves.y) >> i % 2 * 16 & 0xffffu;
}

template <typename T>
__device__ __forceinline__ T Load(const uint8_t* from) {
  return *reinterpret_cast<const T*>(from);
}

// Scales, and mins if the format has them, of four consecutive rows.
struct RowScales {
  float scale[4];
  float minus_min[4];
};

// Of sub-block `sub` of a block, for rows 4 quad .. 4 quad + 3 of the 64 whose header this is.
template <DType kType>
__device__ __forceinline__ RowScales LoadScales(const uint8_t* header, int quad, int sub) {
  const int tile = quad / 4, in_tile = quad % 4;
  RowScales scales;
  if constexpr (BlockConstants<kType>::kHasF16Scales) {
    constexpr int kBytes = BlockConstants<kType>::kHasMins ? 64 : 32;  // of a sub-block of a tile
    const uint8_t* const of_rows = header + (tile * 4 + sub) * kBytes + in_tile * 8;
    const uint2 halves = Load<uint2>(of_rows);
#pragma unroll
    for (int i = 0; i < 4; ++i) scales.scale[i] = F16ToFloat(Half(halves, i));
    if constexpr (BlockConstants<kType>::kHasMins) {
      const uint2 mins = Load<uint2>(of_rows + 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) scales.minus_min[i] = -F16ToFloat(Half(mins, i));
    }
  } else if constexpr (kType == DType::kI4G32) {
    const uint4 words = Load<uint4>(header + tile * 128 + sub / 2 * 64 + in_tile * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scales.scale[i] = __uint_as_float(sub % 2 == 0 ? Word(words, i) << 16 : Word(words, i) & 0xffff0000u);
    }
  } else if constexpr (kType == DType::kI4G128) {
    const uint2 halves = Load<uint2>(header + tile * 32 + in_tile * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) scales.scale[i] = __uint_as_float(Half(halves, i) << 16);
  } else if constexpr (kType == DType::kMXFP4) {
    const uint4 words = Load<uint4>(header + tile * 64 + in_tile * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t exponent = Word(words, i) >> 8 * sub & 0xffu;
      scales.scale[i] = __uint_as_float(exponent == 0 ? 0x00400000u : exponent << 23);  // the first one is subnormal
    }
  } else if constexpr (BlockConstants<kType>::kHasZeroPoints) {
    constexpr int kSubBlocks = BlockConstants<kType>::kBlock / BlockConstants<kType>::kSubBlock;
    const uint4 words = Load<uint4>(header + (tile * kSubBlocks + sub) * 64 + in_tile * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scales.scale[i] = __uint_as_float(Word(words, i) & kScaleOfI4Z);
      scales.minus_min[i] = -(scales.scale[i] * static_cast<float>(Word(words, i) & kZeroOfI4Z));
    }
  } else if constexpr (kType == DType::kQ6K) {
    const uint2 d = Load<uint2>(header + tile * 32 + in_tile * 8);
    const uint4 words = Load<uint4>(header + 128 + tile * 256 + sub / 4 * 64 + in_tile * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto factor = static_cast<int8_t>(Word(words, i) >> 8 * (sub % 4) & 0xffu);
      scales.scale[i] = F16ToFloat(Half(d, i)) * static_cast<float>(factor);
    }
  } else {
    static_assert(kType == DType::kQ4K || kType == DType::kQ5K);
    const uint8_t* const of_tile = header + tile * 256;
    const uint2 d = Load<uint2>(of_tile + in_tile * 8), dmin = Load<uint2>(of_tile + 32 + in_tile * 8);
    const uint8_t* const bytes = of_tile + 64 + in_tile * 16;
    // Scale and min of sub-blocks 0 to 3: 6 bits of bytes sub and 4 + sub. Those of 4 to 7: 4 bits each of byte
    // 4 + sub, and above them 2 bits of bytes sub - 4 and sub.
    const uint4 first = Load<uint4>(bytes), second = Load<uint4>(bytes + 64), third = Load<uint4>(bytes + 128);
    const int shift = 8 * (sub % 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t a = Word(first, i) >> shift, b = Word(second, i) >> shift, c = Word(third, i) >> shift;
      const uint32_t scale = sub < 4 ? a & 63u : (c & 15u) | (a >> 2 & 0x30u);
      const uint32_t min = sub < 4 ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 0x30u);
      scales.scale[i] = F16ToFloat(Half(d, i)) * static_cast<float>(scale);
      scales.minus_min[i] = -(F16ToFloat(Half(dmin, i)) * static_cast<float>(min));
    }
  }
  return scales;
}

// The place of 16-byte chunk `chunk` of a row group's codes of a stage in shared memory: chunks that 8 lanes read at
// once hit different banks.
template <DType kType>
__device__ __forceinline__ int CodePlace(int chunk) {
  constexpr int kBits = BlockConstants<kType>::kBits;
  if constexpr (kBits == 4) {
    return chunk ^ ((chunk >> 4 & 3) << 1);
  } else if constexpr (kBits == 5) {
    return chunk ^ ((chunk % 20 >> 3 & 1) << 1);
  } else if constexpr (kBits == 8) {
    return chunk ^ (chunk >> 4 & 6);
  } else {
    return chunk;
  }
}

template <DType kType>
__device__ __forceinline__ uint4 LoadChunk(const uint8_t* codes, int chunk) {
  return Load<uint4>(codes + CodePlace<kType>(chunk) * 16);
}

// The A fragments of 32 rows for inputs that two mma take, which share a scale: a[u][f] is fragment f of product u. The
// lane has four rows, 4 quad and on, of a row group, two of each fragment. codes: the row group's part of a stage;
// k: which 32 of its inputs.
template <DType kType>
__device__ __forceinline__ void LoadCodes32(const uint8_t* codes, int k, int t, int quad, uint32_t (&a)[2][2][4]) {
  constexpr int kBits = BlockConstants<kType>::kBits;
  if constexpr (kBits == 8) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const uint4 words = LoadChunk<kType>(codes, (8 * k + 2 * t + u) * 16 + quad);
#pragma unroll
      for (int row = 0; row < 4; ++row) {  // inputs 0 2 1 3
        a[u][row / 2][row % 2] = ExpandSigned(Word(words, row));
        a[u][row / 2][row % 2 + 2] = ExpandSigned(Word(words, row) >> 8);
      }
    }
  } else {
    uint4 words;
    [[maybe_unused]] uint4 fifth;
    if constexpr (kBits == 5) {
      const int tile = (4 * k + quad / 4) * 20;
      words = LoadChunk<kType>(codes, tile + 4 * t + quad % 4);
      fifth = LoadChunk<kType>(codes, tile + 16 + quad % 4);
    } else {
      words = LoadChunk<kType>(codes, (4 * k + t) * 16 + quad);
    }
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t& value = a[pair / 2][row / 2][row % 2 + pair % 2 * 2];
        if constexpr (kType == DType::kMXFP4) {
          value = ExpandE2M1(Word(words, row), pair);
        } else if constexpr (kBits == 5) {
          value = ExpandCodes<kType>((Word(words, row) >> 4 * pair & 0x000f000fu) |
                                     (Word(fifth, row) >> (4 * t + pair) & 0x00010001u) << 4);
        } else {
          value = ExpandCodes<kType>(Word(words, row) >> 4 * pair & 0x000f000fu);
        }
      }
    }
  }
}

// Q6_K, whose scales are those of 16 inputs: the fragments of one mma for the stage's k-th 16. The lane has inputs
// 4 t .. 4 t + 3 of them.
__device__ __forceinline__ void LoadCodes16(const uint8_t* codes, int k, int t, int quad, uint32_t (&a)[2][4]) {
  const int tile = (4 * k + quad / 4) * 12, word = t / 2;
  const uint4 low = LoadChunk<DType::kQ6K>(codes, tile + 4 * word + quad % 4);
  const uint4 high = LoadChunk<DType::kQ6K>(codes, tile + 8 + quad % 4);
#pragma unroll
  for (int row = 0; row < 4; ++row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pair = t % 2 * 2 + i;
      const uint32_t upper = Word(high, row) >> (8 * (pair / 2) + 4 * word + 2 * i) & 0x00030003u;
      a[row / 2][row % 2 + 2 * i] = ExpandCodes<DType::kQ6K>((Word(low, row) >> 4 * pair & 0x000f000fu) | upper << 4);
    }
  }
}

}  // namespace moestro::cuda
