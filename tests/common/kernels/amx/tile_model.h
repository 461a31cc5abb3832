// A scalar model of the tile instructions that common/kernels/cpu/amx/tiles.h wraps, after the Intel SDM's pseudocode
// of LDTILECFG, TILEZERO, TILELOADD, TILESTORED, TDPBF16PS and TDPBUSD.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/kernels/cpu/amx/tiles.h"

namespace moestro::amx {
namespace {  // each source that includes this has its own flags, and so its own model

struct TileModel {
  struct Tile {
    uint8_t bytes[kTileRowCount][kTileRowBytes];
  };

  static void Configure(const TileConfig& wanted = kTileConfig) {
    tiles = {};
    config = wanted;
  }

  template <int kTile>
  static void Zero() {
    tiles[kTile] = {};
  }
  template <int kTile>
  static void Load(const void* p, int64_t stride) {
    tiles[kTile] = {};
    for (int row = 0; row < config.rows[kTile]; ++row) {
      std::memcpy(tiles[kTile].bytes[row], static_cast<const uint8_t*>(p) + row * stride, config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void Store(void* p, int64_t stride) {
    for (int row = 0; row < config.rows[kTile]; ++row) {
      std::memcpy(static_cast<uint8_t*>(p) + row * stride, tiles[kTile].bytes[row], config.row_bytes[kTile]);
    }
  }
  template <int kSum, int kA, int kB>
  static void CheckShapes() {
    const bool shapes_fit = config.rows[kA] == config.rows[kSum] && config.row_bytes[kB] == config.row_bytes[kSum] &&
                            config.row_bytes[kA] == 4 * config.rows[kB];
    if (!shapes_fit) std::abort();  // the instruction faults
  }
  template <int kSum, int kA, int kB>
  static void AddProduct() {
    CheckShapes<kSum, kA, kB>();
    for (int m = 0; m < config.rows[kSum]; ++m) {
      for (int n = 0; n < config.row_bytes[kSum] / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < config.rows[kB]; ++k) {
          even = MultiplyAdd(Bf16(kA, m, 2 * k), Bf16(kB, k, 2 * n), even);
          odd = MultiplyAdd(Bf16(kA, m, 2 * k + 1), Bf16(kB, k, 2 * n + 1), odd);
        }
        float sum;
        uint8_t* at = tiles[kSum].bytes[m] + 4 * n;
        std::memcpy(&sum, at, sizeof sum);
        sum = Flush(Flush(sum) + Flush(even + odd));
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

  template <int kSum, int kA, int kB>
  static void AddByteProduct() {
    CheckShapes<kSum, kA, kB>();
    for (int m = 0; m < config.rows[kSum]; ++m) {
      for (int n = 0; n < config.row_bytes[kSum] / 4; ++n) {
        uint8_t* at = tiles[kSum].bytes[m] + 4 * n;
        uint32_t sum;
        std::memcpy(&sum, at, sizeof sum);
        for (int k = 0; k < config.row_bytes[kA]; ++k) {
          const int product = tiles[kA].bytes[m][k] * static_cast<int8_t>(tiles[kB].bytes[k / 4][4 * n + k % 4]);
          sum += static_cast<uint32_t>(product);
        }
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

  static float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
  static float MultiplyAdd(float a, float b, float c) { return Flush(std::fma(Flush(a), Flush(b), c)); }
  static float Bf16(int tile, int row, int column) {
    uint16_t bf16;
    std::memcpy(&bf16, tiles[tile].bytes[row] + 2 * column, sizeof bf16);
    const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  static thread_local std::array<Tile, 8> tiles;
  static thread_local TileConfig config;
};
thread_local std::array<TileModel::Tile, 8> TileModel::tiles;
thread_local TileConfig TileModel::config;

}  // namespace
}  // namespace moestro::amx
