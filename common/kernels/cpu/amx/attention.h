// A decoded token's attention without packed blocks, which cost more than what so few queries do with them. Keys are
// multiplied as the cache holds them, as the inputs of queries that are transposed instead (products commute, and both
// factors take their turns in the same order: the bits are those of linear); values are put side by side, token by
// token, one head after the other, in L1. The next block is fetched beside all of it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/tiles.h"
#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/transpose.h"

namespace moestro::amx {

constexpr int64_t kWeightSteps = kAttentionBlock / kStepInputs;
constexpr int64_t kTileBytes = kTileRowCount * kTileRowBytes;

// Tiles 0 to 4 are as wide as there are queries, 6 and 7 as high.
static constexpr TileConfig MakeAttentionConfig(int64_t queries) {
  TileConfig config = kTileConfig;
  for (int tile = 0; tile < 5; ++tile) config.row_bytes[tile] = static_cast<uint16_t>(4 * queries);
  for (int tile = 6; tile < 8; ++tile) config.rows[tile] = static_cast<uint8_t>(queries);
  return config;
}

struct AttentionScratch {
  alignas(64) uint32_t queries[kTileRows][kTileRows];   // of a step: pairs of inputs
  alignas(64) uint16_t keys[kTileTokens][kStepInputs];  // a tile in which tokens end
  alignas(64) float scores_by_token[kAttentionBlock][kTileRows];
  alignas(64) float scores[kTileRows][kAttentionBlock];
  alignas(64) uint16_t weights[kTileRows][kAttentionBlock];
  alignas(64) uint8_t values[kScaleBlock / kTileRows][kWeightSteps][kTileBytes];  // of all tokens: pairs
};

namespace {  // for internal linkage of the members

template <typename Tiles>
class TokenAttention {
 public:
  TokenAttention(const KvBlock& kv, int64_t tokens, const TokenQueries& q, AttentionScratch& scratch)
      : kv_(kv), tokens_(tokens), q_(q), scratch_(scratch) {}

  void Run() {
    Tiles::Configure(MakeAttentionConfig(q_.group));
    for (int64_t head = 0; head < q_.kv_heads; ++head) {
      Scores(head);
      Weights(head);
      AddValues(head);
    }
  }

 private:
  // scores_by_token[token][query] of the head, tokens rounded up to whole tiles.
  void Scores(int64_t head) {
    const uint16_t* keys = kv_.keys + head * q_.key_dim;
    const uint16_t* queries = q_.queries + head * q_.query_stride;
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
    for (int64_t i = 0; i < q_.key_dim; i += kStepInputs) {
      Tiles::template Load<4>(PairQueries(queries, i), sizeof scratch_.queries[0]);
      AddScores<0>(keys + i);
      AddScores<1>(keys + i);
      AddScores<2>(keys + i);
      AddScores<3>(keys + i);
    }
    StoreScores<0>();
    StoreScores<1>();
    StoreScores<2>();
    StoreScores<3>();
  }

  template <int kTile>
  [[gnu::always_inline]] inline void AddScores(const uint16_t* keys) {
    constexpr int64_t kToken = kTile * kTileTokens;
    if (kToken >= tokens_) return;
    LoadKeys(keys + kToken * kv_.key_stride, tokens_ - kToken);
    Tiles::template AddProduct<kTile, 5, 4>();
    next_.Fetch(2);
  }
  template <int kTile>
  [[gnu::always_inline]] inline void StoreScores() {
    Tiles::template Store<kTile>(scratch_.scores_by_token[kTile * kTileTokens], sizeof scratch_.scores_by_token[0]);
  }

  // The inputs of all queries from the i-th on as the second factor of a tile product. Half a tile of queries has room
  // for two steps' inputs, which are transposed together.
  const uint32_t* PairQueries(const uint16_t* queries, int64_t i) {
    constexpr int kHalf = kTileRows / 2;
    const bool halves = q_.group <= kHalf;
    if (halves && i % (2 * kStepInputs) != 0) return scratch_.queries[0] + kHalf;
    __m512i rows[kTileRows], pairs[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const bool next_step = halves && r >= kHalf;
      const int query = next_step ? r - kHalf : r;
      const int64_t input = next_step ? i + kStepInputs : i;
      rows[r] = query < q_.group && input < q_.key_dim ? _mm512_loadu_si512(queries + query * q_.key_dim + input)
                                                       : _mm512_setzero_si512();
    }
    avx512::Transpose(rows, pairs);
#pragma GCC unroll 16
    for (int p = 0; p < kTileRows; ++p) _mm512_store_si512(scratch_.queries[p], pairs[p]);
    return scratch_.queries[0];
  }

  // A step's inputs of up to a tile of tokens.
  void LoadKeys(const uint16_t* keys, int64_t tokens) {
    if (tokens >= kTileTokens) {
      Tiles::template Load<5>(keys, kv_.key_stride * 2);
      return;
    }
    for (int64_t t = 0; t < kTileTokens; ++t) {
      const __m512i row = t < tokens ? _mm512_loadu_si512(keys + t * kv_.key_stride) : _mm512_setzero_si512();
      _mm512_store_si512(scratch_.keys[t], row);
    }
    Tiles::template Load<5>(scratch_.keys, sizeof scratch_.keys[0]);
  }

  // Scores to weights; what is summed so far is brought to the new maxima.
  void Weights(int64_t head) {
    for (int64_t token = 0; token < tokens_; token += kTileTokens) {
      __m512i rows[16], columns[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) rows[r] = _mm512_load_si512(scratch_.scores_by_token[token + r]);
      avx512::Transpose(rows, columns);
      next_.Fetch(2);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) _mm512_store_si512(scratch_.scores[r] + token, columns[r]);
    }
    for (int64_t query = 0; query < q_.group; ++query) {
      const int64_t i = head * q_.group + query;
      const float rescale = avx512::SoftmaxStep(scratch_.scores[query], tokens_, kAttentionBlock, q_.scale,
                                                q_.states + i, scratch_.weights[query]);
      next_.Fetch(2);
      if (rescale == 1) continue;  // no new maximum: so it is in most blocks
      float* sums = q_.sums + i * q_.value_dim;
      for (int64_t n = 0; n < q_.value_dim; n += kTileRows) {
        _mm512_storeu_ps(sums + n, _mm512_mul_ps(_mm512_loadu_ps(sums + n), _mm512_set1_ps(rescale)));
      }
    }
  }

  void AddValues(int64_t head) {
    const uint16_t* values = kv_.values + head * q_.value_dim;
    float* sums = q_.sums + head * q_.group * q_.value_dim;
    const int64_t stride = q_.value_dim * 4;
    for (int64_t begin = 0; begin < q_.value_dim; begin += kScaleBlock) {
      const int64_t dim = Min(kScaleBlock, q_.value_dim - begin);
      PairValues(values + begin, dim);
      for (int64_t n = 0; n < dim; n += kTileRows) {
        Tiles::template Load<7>(sums + begin + n, stride);
#pragma GCC unroll 2
        for (int64_t step = 0; step < kWeightSteps; ++step) {
          Tiles::template Load<6>(scratch_.weights[0] + step * kStepInputs, sizeof scratch_.weights[0]);
          Tiles::template Load<5>(scratch_.values[n / kTileRows][step], kTileRowBytes);
          Tiles::template AddProduct<7, 6, 5>();
          next_.Fetch(3);
        }
        Tiles::template Store<7>(sums + begin + n, stride);
      }
    }
  }

  // dim numbers of all tokens as second factors of tile products.
  void PairValues(const uint16_t* values, int64_t dim) {
    for (int64_t t = 0; t < kAttentionBlock; t += 2) {
      const uint16_t* row = values + t * kv_.value_stride;
      for (int64_t n = 0; n < dim; n += 32) {
        const __m512i even = t < tokens_ ? _mm512_loadu_si512(row + n) : _mm512_setzero_si512();
        const __m512i odd = t + 1 < tokens_ ? _mm512_loadu_si512(row + kv_.value_stride + n) : _mm512_setzero_si512();
        uint8_t* out = scratch_.values[n / kTileRows][t / kStepInputs] + t % kStepInputs / 2 * kTileRowBytes;
        _mm512_store_si512(out, _mm512_permutex2var_epi16(even, interleaver_.first, odd));
        _mm512_store_si512(out + sizeof scratch_.values[0], _mm512_permutex2var_epi16(even, interleaver_.second, odd));
      }
      next_.Fetch(1);
    }
  }

  const KvBlock& kv_;
  const int64_t tokens_;
  const TokenQueries& q_;
  AttentionScratch& scratch_;
  const avx512::Interleaver interleaver_ = avx512::MakeInterleaver();
  // The next block, fetched as evenly as can be: how much beside what is in proportion to how long it takes, and makes
  // a block for heads of 64 to 256 numbers in groups of 4 to 16.
  PendingPairs next_ = {kv_.next, kv_.next_bytes / kPairBytes};
};

}  // namespace

template <typename Tiles>
static inline void Attend(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  AttentionScratch scratch;
  TokenAttention<Tiles>(kv, tokens, queries, scratch).Run();
}

}  // namespace moestro::amx
