// Reads a block's rows of keys and values for one head, once, into scratch that stays in L1. The rows of a cache with 8
// KV heads lie 4 KiB apart, so a column of rows shares a set of L1. Walked line by line from L2, it gives a line in 6.4
// cycles (Zen 5); 256 bytes of each row in turn give one in 3.1.
//
// Rows are packed in small steps beside dot products. Each step also prefetches as much of the next block, line by line
// and into L1: from L2, a line would be fetched twice.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/transpose.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx512_bf16 {

constexpr int kTokenTiles = kAttentionBlock / 16;
constexpr int kStepDims = 32;  // a line of a row

// At most kScaleBlock dims of a head, the length of a chain in `linear`.
struct PackedRows {
  // Keys, half transposed: [8 dims][16 tokens][r] holds 4 pairs each of tokens r, r + 4, r + 8, r + 12.
  alignas(64) uint16_t keys[kScaleBlock / 8][kTokenTiles][4][32];
  // Values, two tokens side by side: [token pair][16 dims], without gaps for fewer dims.
  alignas(64) uint16_t values[kAttentionBlock / 2 * (kScaleBlock / 16)][32];
};

namespace {  // for internal linkage of the members

// The next block's memory, in the order of addresses.
class NextLines {
 public:
  NextLines() = default;
  explicit NextLines(const KvBlock& kv) : next_(kv.next), end_(kv.next + kv.next_bytes) {}

  template <int kLines>
  [[gnu::always_inline]] inline void Fetch() {
    if (next_ >= end_) return;
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) Prefetch(next_ + i * 64);
    next_ += kLines * 64;
  }

 private:
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
};

// Rows of a block. kWhole: all tokens are there; otherwise absent ones read as zeros.
template <bool kWhole>
struct Rows {
  const uint16_t* first = nullptr;
  int64_t stride = 0;
  int64_t tokens = 0;

  [[gnu::always_inline]] inline __m512i Load(int64_t token, int64_t dim) const {
    const uint16_t* p = first + token * stride + dim;
    return kWhole ? _mm512_loadu_si512(p) : avx512::LoadToken(token < tokens, ~__mmask32{0}, p);
  }
};

// Packs keys of `dims` dims, four rows of 32 dims a step; nothing for 0 dims. Steps of null rows prefetch only.
template <bool kWhole>
class KeyPacker {
 public:
  KeyPacker(const Rows<kWhole>& rows, int64_t dims, PackedRows& packed, const NextLines& next)
      : rows_(rows), dims_(dims), out_(packed.keys), next_(next), quad_(dims == 0 ? kQuads : 0) {}

  int64_t steps() const { return (kQuads - quad_) * (dims_ / kStepDims); }
  const NextLines& next() const { return next_; }

  [[gnu::always_inline]] inline void Step() {
    if (quad_ == kQuads) return;
    next_.Fetch<4>();
    if (rows_.first != nullptr) Pack();
    if ((dim_ += kStepDims) == dims_) dim_ = 0, ++quad_;
  }
  void Finish() {
    while (quad_ < kQuads) Step();
  }

 private:
  static constexpr int64_t kQuads = kAttentionBlock / 4;

  [[gnu::always_inline]] inline void Pack() {
    const int64_t tile = quad_ / 4, r = quad_ % 4, token = tile * 16 + r;
    const __m512i r0 = rows_.Load(token, dim_), r1 = rows_.Load(token + 4, dim_);
    const __m512i r2 = rows_.Load(token + 8, dim_), r3 = rows_.Load(token + 12, dim_);
    const __m512i low01 = _mm512_shuffle_i32x4(r0, r1, 0x44), high01 = _mm512_shuffle_i32x4(r0, r1, 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(r2, r3, 0x44), high23 = _mm512_shuffle_i32x4(r2, r3, 0xee);
    auto* out = out_ + dim_ / 8;
    _mm512_store_si512(out[0][tile][r], _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_store_si512(out[1][tile][r], _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_store_si512(out[2][tile][r], _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_store_si512(out[3][tile][r], _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }

  Rows<kWhole> rows_;
  int64_t dims_;
  uint16_t (*out_)[kTokenTiles][4][32];
  NextLines next_;
  int64_t quad_;  // of tokens r, r + 4, r + 8, r + 12 of a tile
  int64_t dim_ = 0;
};

// Packs values of `dims` dims, two rows of 32 dims a step. Rows that are null: nothing to do.
template <bool kWhole>
class ValuePacker {
 public:
  ValuePacker(const Rows<kWhole>& rows, int64_t dims, PackedRows& packed, const NextLines& next)
      : rows_(rows),
        dims_(dims),
        out_(packed.values),
        next_(next),
        token_(rows.first == nullptr ? kAttentionBlock : 0) {}

  int64_t steps() const { return (kAttentionBlock - token_) / 2 * (dims_ / kStepDims); }
  const NextLines& next() const { return next_; }

  [[gnu::always_inline]] inline void Step() {
    if (token_ == kAttentionBlock) return;
    next_.Fetch<2>();
    const __m512i even = rows_.Load(token_, dim_), odd = rows_.Load(token_ + 1, dim_);
    _mm512_store_si512(out_[0], _mm512_permutex2var_epi16(even, interleaver_.first, odd));
    _mm512_store_si512(out_[1], _mm512_permutex2var_epi16(even, interleaver_.second, odd));
    out_ += 2;
    if ((dim_ += kStepDims) == dims_) dim_ = 0, token_ += 2;
  }
  void Finish() {
    while (token_ < kAttentionBlock) Step();
  }

 private:
  Rows<kWhole> rows_;
  int64_t dims_;
  uint16_t (*out_)[32];
  NextLines next_;
  avx512::Interleaver interleaver_ = avx512::MakeInterleaver();
  int64_t token_;
  int64_t dim_ = 0;
};

}  // namespace

// Four pairs of dims, 16 tokens each, from half transposed keys.
[[gnu::always_inline]] static inline void FinishTranspose(const uint16_t (&keys)[4][32], __m512i (&pairs)[4]) {
  const __m512i r0 = _mm512_load_si512(keys[0]), r1 = _mm512_load_si512(keys[1]);
  const __m512i r2 = _mm512_load_si512(keys[2]), r3 = _mm512_load_si512(keys[3]);
  const __m512i a0 = _mm512_unpacklo_epi32(r0, r1), a1 = _mm512_unpackhi_epi32(r0, r1);
  const __m512i a2 = _mm512_unpacklo_epi32(r2, r3), a3 = _mm512_unpackhi_epi32(r2, r3);
  pairs[0] = _mm512_unpacklo_epi64(a0, a2);
  pairs[1] = _mm512_unpackhi_epi64(a0, a2);
  pairs[2] = _mm512_unpacklo_epi64(a1, a3);
  pairs[3] = _mm512_unpackhi_epi64(a1, a3);
}

}  // namespace moestro::avx512_bf16
