// The tile instructions: eight registers of up to 16 rows x 64 bytes. Kernels use them only through the functions of a
// struct like Tiles, for which the tests have a scalar model.
#pragma once

#include <cstdint>

namespace moestro::amx {

constexpr int kTileRowBytes = 64;
constexpr int kTileRowCount = 16;

// The operand of LDTILECFG: Intel SDM volume 1, chapter 18.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

static constexpr TileConfig MakeTileConfig() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = kTileRowCount;
  }
  return config;
}
static constexpr TileConfig kTileConfig = MakeTileConfig();  // all tiles of maximum size

namespace {  // for internal linkage of the members

// Assembly, because GCC 12's intrinsics do not tell the compiler that a tile load reads memory.
struct Tiles {
  // Call before the first use in a call. Tiles and their configuration belong to the thread; other code on it may have
  // loaded another configuration or released the tiles. Checking takes 5 ns, loading 50 to 70.
  static inline void Configure(const TileConfig& wanted = kTileConfig) {
    TileConfig current;
    __asm__ volatile("sttilecfg %0" : "=m"(current));
    if (__builtin_memcmp(&current, &wanted, sizeof current) == 0) return;
    __asm__ volatile("ldtilecfg %0" : : "m"(wanted));
  }

  template <int kTile>
  [[gnu::always_inline]] static inline void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Row r is at p + r * stride; stride in bytes. Rows and bytes per row are those of the tile's configuration.
  template <int kTile>
  [[gnu::always_inline]] static inline void Load(const void* p, int64_t stride) {
    __asm__ volatile("tileloadd (%1, %2), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] static inline void Store(void* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1, %2)" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  // F32 sum[m][n] += BF16 a[m][0 .. 31] * b[0 .. 31][n] for the sum's m and n. Row r of b holds inputs 2 r and 2 r + 1
  // of column n side by side. Two chains of fused multiply-adds start from zero, one over even and one over odd inputs;
  // their sum is added to sum[m][n]. Denormal inputs and results become zeros, whatever MXCSR says.
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static inline void AddProduct() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  // S32 sum[m][n] += U8 a[m][0 .. 63] * S8 b[0 .. 63][n], exactly, modulo 2^32. Row r of b holds inputs 4 r .. 4 r + 3
  // of column n side by side.
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static inline void AddByteProduct() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace

}  // namespace moestro::amx
