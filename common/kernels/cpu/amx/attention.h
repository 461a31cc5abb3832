// Attention of one decoded token without packed blocks, which cost more than so few queries gain from them. Tile
// products take keys and values in the cache's layout:
//   keys    are the inputs; the transposed queries are the second factor. Products commute, and both factors are
//           traversed in the same order.
//   values  are the second factor: a row is a token, with its dims (0, 1), (2, 3) .. as pairs of inputs. The weights
//           are interleaved with zeros: (w, 0) for even dims, (0, w) for odd ones. Even tokens come first, then odd
//           ones: the order of a step of linear_add.
// So the bits are those of linear and linear_add. The next block is prefetched meanwhile.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/tiles.h"
#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/softmax.h"
#include "common/kernels/cpu/avx512/transpose.h"

namespace moestro::amx {

constexpr int64_t kWeightSteps = kAttentionBlock / kStepInputs;
constexpr int kParities = 2;  // even and odd tokens; even and odd dims
constexpr int kHalfTile = kTileRowCount / 2;
// Heads processed together: first their scores and weights, then their values, since loading a configuration takes 50
// to 70 ns. Their weights stay in L1.
constexpr int64_t kHeadsTogether = 8;
// Pairs of the next block prefetched beside each tile of keys or values, which has 4.
constexpr int64_t kPairsBesideTile = 2;

// Tiles 2 and 3 hold keys or values. For scores, tiles 0 and 4 to 7 have one column per query. For values, tiles 0, 1
// and 4 to 7 have one row per query.
static constexpr TileConfig MakeScoresConfig(int64_t queries) {
  TileConfig config = kTileConfig;
  for (int tile : {0, 4, 5, 6, 7}) config.row_bytes[tile] = static_cast<uint16_t>(4 * queries);
  return config;
}
static constexpr TileConfig MakeValuesConfig(int64_t queries) {
  TileConfig config = kTileConfig;
  for (int tile : {0, 1, 4, 5, 6, 7}) config.rows[tile] = static_cast<uint8_t>(queries);
  return config;
}

struct AttentionScratch {
  alignas(64) uint32_t queries[kTileRowCount][kTileRowCount];  // of one step: pairs of inputs
  alignas(64) uint16_t rows[kTileRowCount][kStepInputs];       // the tile that contains the last tokens
  // Double-buffered by head: tile stores should have left the store buffer before vector loads read them.
  alignas(64) float scores_by_token[2][kAttentionBlock][kTileRowCount];
  alignas(64) float scores[kTileRowCount][kAttentionBlock];
  alignas(64) uint16_t weights[kHeadsTogether][kTileRowCount][kAttentionBlock];
  // Double-buffered by head: weights of the even tokens, then of the odd ones; for even dims, then for odd ones.
  alignas(64) uint32_t spread[2][kWeightSteps][kParities][kParities][kTileRowCount][kTileRowCount];
  // A step's contribution to a query's sums: even dims of 32, then odd ones.
  alignas(64) float parts[kWeightSteps][kScaleBlock / kStepInputs][kParities][kTileRowCount][kTileRowCount];
};

namespace {  // for internal linkage of the members

template <typename Tiles>
class TokenAttention {
 public:
  TokenAttention(const KvBlock& kv, int64_t tokens, const TokenQueries& q, AttentionScratch& scratch)
      : kv_(kv), tokens_(tokens), q_(q), scratch_(scratch) {}

  void Run() {
    for (int64_t head = 0; head < q_.kv_heads; head += kHeadsTogether) {
      AttendHeads(head, Min(q_.kv_heads, head + kHeadsTogether));
    }
  }

 private:
  void AttendHeads(int64_t begin, int64_t end) {
    Tiles::Configure(MakeScoresConfig(q_.group));
    Scores(begin);
    for (int64_t head = begin; head < end; ++head) {
      if (head + 1 < end) Scores(head + 1);
      Weights(head);
    }
    Tiles::Configure(MakeValuesConfig(q_.group));
    const FlushDenormals as_tiles_do;
    SpreadWeights(begin);
    for (int64_t head = begin; head < end; ++head) {
      if (head + 1 < end) SpreadWeights(head + 1);
      AddValues(head);
    }
  }

  // With room for two halves, a tile holds tokens 0 to 15 and 16 to 31, or inputs of two steps, side by side.
  bool halves() const { return q_.group <= kHalfTile; }

  // Scores of a head, with tokens rounded up to whole tiles.
  void Scores(int64_t head) {
    const uint16_t* keys = kv_.keys + head * q_.key_dim;
    const uint16_t* queries = q_.queries + head * q_.query_stride;
    auto& scores = scratch_.scores_by_token[head % 2];
    for (int64_t begin = 0; begin < q_.key_dim; begin += kScaleBlock) {
      const int64_t inputs = Min(kScaleBlock, q_.key_dim - begin);
      LoadQueries<0>(queries + begin, inputs);
      LoadQueries<1>(queries + begin, inputs);
      LoadQueries<2>(queries + begin, inputs);
      LoadQueries<3>(queries + begin, inputs);
      for (int64_t tile = 0; tile * kTileTokens < tokens_; ++tile) {
        float* sums = halves() ? scores[tile / 2 * kTileTokens] + tile % 2 * kHalfTile : scores[tile * kTileTokens];
        if (begin == 0) {
          Tiles::template Zero<0>();
        } else {
          Tiles::template Load<0>(sums, sizeof scores[0]);
        }
        const uint16_t* rows = keys + tile * kTileTokens * kv_.key_stride + begin;
        const int64_t tokens = tokens_ - tile * kTileTokens;
        AddScores<0>(rows, tokens, inputs);
        AddScores<1>(rows, tokens, inputs);
        AddScores<2>(rows, tokens, inputs);
        AddScores<3>(rows, tokens, inputs);
        Tiles::template Store<0>(sums, sizeof scores[0]);
      }
    }
  }

  // One step's inputs of all queries, as the second factor of a tile product.
  template <int kStep>
  [[gnu::always_inline]] inline void LoadQueries(const uint16_t* queries, int64_t inputs) {
    constexpr int64_t kFirst = kStep * kStepInputs;
    if (kFirst >= inputs) return;
    const bool is_second_half = halves() && kStep % 2 != 0;
    if (!is_second_half) TransposeQueries(queries + kFirst, inputs - kFirst);
    const uint32_t* from = scratch_.queries[0] + (is_second_half ? kHalfTile : 0);
    Tiles::template Load<4 + kStep>(from, sizeof scratch_.queries[0]);
  }
  void TransposeQueries(const uint16_t* queries, int64_t inputs) {
    __m512i rows[kTileRowCount], pairs[kTileRowCount];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRowCount; ++r) {
      const bool next_step = halves() && r >= kHalfTile;
      const int query = next_step ? r - kHalfTile : r;
      const int64_t input = next_step ? kStepInputs : 0;
      rows[r] = query < q_.group && input < inputs ? _mm512_loadu_si512(queries + query * q_.key_dim + input)
                                                   : _mm512_setzero_si512();
    }
    avx512::Transpose(rows, pairs);
#pragma GCC unroll 16
    for (int p = 0; p < kTileRowCount; ++p) _mm512_store_si512(scratch_.queries[p], pairs[p]);
  }

  template <int kStep>
  [[gnu::always_inline]] inline void AddScores(const uint16_t* keys, int64_t tokens, int64_t inputs) {
    if (kStep * kStepInputs >= inputs) return;
    LoadRows<2 + kStep % 2>(keys + kStep * kStepInputs, kv_.key_stride, tokens);
    Tiles::template AddProduct<0, 2 + kStep % 2, 4 + kStep>();
    next_.Fetch(kPairsBesideTile);
  }

  // Loads 32 elements each of up to 16 tokens, `stride` elements apart; pads with zeros.
  template <int kTile>
  [[gnu::always_inline]] inline void LoadRows(const uint16_t* first, int64_t stride, int64_t tokens) {
    if (tokens >= kTileTokens) [[likely]] {
      Tiles::template Load<kTile>(first, stride * 2);
    } else {
      CopyRows(first, stride, tokens);
      Tiles::template Load<kTile>(scratch_.rows, sizeof scratch_.rows[0]);
    }
  }
  [[gnu::noinline, gnu::cold]] void CopyRows(const uint16_t* first, int64_t stride, int64_t tokens) {
    for (int64_t t = 0; t < kTileTokens; ++t) {
      const __m512i row = t < tokens ? _mm512_loadu_si512(first + t * stride) : _mm512_setzero_si512();
      _mm512_store_si512(scratch_.rows[t], row);
    }
  }

  // Turns scores into weights, and rescales the sums so far to the new maxima.
  void Weights(int64_t head) {
    TransposeScores(head);
    SoftmaxState* states = q_.states + head * q_.group;
    float maxima[kTileRowCount];
    alignas(64) float shifts[kTileRowCount] = {};
    for (int64_t query = 0; query < q_.group; ++query) {
      for (int64_t token = 0; token < q_.first_token; ++token) scratch_.scores[query][token] = -__builtin_inff();
      const float before = states[query].max_score;
      const float greatest = avx512::GreatestScore(scratch_.scores[query], tokens_, q_.scale);
      maxima[query] = greatest > before ? greatest : before;
      shifts[query] = before - maxima[query];
    }
    alignas(64) float rescales[kTileRowCount];
    _mm512_store_ps(rescales, avx512::Exp(_mm512_load_ps(shifts)));
    for (int64_t query = 0; query < q_.group; ++query) {
      const float sum = avx512::StoreWeights(scratch_.scores[query], tokens_, kAttentionBlock, q_.scale, maxima[query],
                                             scratch_.weights[head % kHeadsTogether][query]);
      states[query] = {maxima[query], __builtin_fmaf(states[query].sum, rescales[query], sum)};
      next_.Fetch(beside_softmax_);
      if (rescales[query] == 1) continue;  // no new maximum, as in most blocks
      Rescale(rescales[query], q_.sums + (head * q_.group + query) * q_.value_dim);
    }
  }

  void TransposeScores(int64_t head) {
    const int64_t tokens = halves() ? 2 * kTileTokens : kTileTokens;  // per 16 rows
    for (int64_t token = 0; token < tokens_; token += tokens) {
      const auto* by_token = &scratch_.scores_by_token[head % 2][halves() ? token / 2 : token];
      __m512i rows[kTileRowCount], columns[kTileRowCount];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRowCount; ++r) rows[r] = _mm512_load_si512(by_token[r]);
      next_.Fetch(beside_transpose_);
      avx512::Transpose(rows, columns);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRowCount; ++r) {
        float* to = halves() ? scratch_.scores[r % kHalfTile] + r / kHalfTile * kTileTokens : scratch_.scores[r];
        _mm512_store_si512(to + token, columns[r]);
      }
    }
  }

  void Rescale(float factor, float* sums) const {
    for (int64_t n = 0; n < q_.value_dim; n += 16) {
      _mm512_storeu_ps(sums + n, _mm512_mul_ps(_mm512_loadu_ps(sums + n), _mm512_set1_ps(factor)));
    }
  }

  void SpreadWeights(int64_t head) {
    auto& spread = scratch_.spread[head % 2];
    const __m512i odd_halves = _mm512_set1_epi32(-0x10000);
    for (int64_t query = 0; query < q_.group; ++query) {
#pragma GCC unroll 2
      for (int64_t step = 0; step < kWeightSteps; ++step) {
        const uint16_t* weights = scratch_.weights[head % kHeadsTogether][query] + step * kStepInputs;
        const __m512i pairs = _mm512_load_si512(weights);  // an even token and the next one
        _mm512_store_si512(spread[step][0][0][query], _mm512_andnot_si512(odd_halves, pairs));
        _mm512_store_si512(spread[step][0][1][query], _mm512_slli_epi32(pairs, 16));
        _mm512_store_si512(spread[step][1][0][query], _mm512_srli_epi32(pairs, 16));
        _mm512_store_si512(spread[step][1][1][query], _mm512_and_si512(odd_halves, pairs));
      }
    }
  }

  void AddValues(int64_t head) {
    const uint16_t* values = kv_.values + head * q_.value_dim;
    float* sums = q_.sums + head * q_.group * q_.value_dim;
    for (int64_t begin = 0; begin < q_.value_dim; begin += kScaleBlock) {
      const int64_t dim = Min(kScaleBlock, q_.value_dim - begin);
      for (int64_t step = 0; step < kWeightSteps; ++step) MultiplyValues(head, step, values + begin, dim);
      AddParts(dim, sums + begin);
    }
  }

  // One step's part of the sums of some dims.
  void MultiplyValues(int64_t head, int64_t step, const uint16_t* values, int64_t dim) {
    const auto& weights = scratch_.spread[head % 2][step];
    constexpr int64_t kStride = sizeof weights[0][0][0];
    Tiles::template Load<4>(weights[0][0], kStride);
    Tiles::template Load<5>(weights[0][1], kStride);
    Tiles::template Load<6>(weights[1][0], kStride);
    Tiles::template Load<7>(weights[1][1], kStride);
    const int64_t tokens = tokens_ - step * kStepInputs;
    const uint16_t* even = values + step * kStepInputs * kv_.value_stride;
    const uint16_t* odd = even + kv_.value_stride;
    for (int64_t n = 0; n < dim; n += kStepInputs) {
      auto& parts = scratch_.parts[step][n / kStepInputs];
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      LoadRows<2>(even + n, 2 * kv_.value_stride, (tokens + 1) / 2);
      Tiles::template AddProduct<0, 4, 2>();
      Tiles::template AddProduct<1, 5, 2>();
      next_.Fetch(kPairsBesideTile);
      LoadRows<3>(odd + n, 2 * kv_.value_stride, tokens / 2);
      Tiles::template AddProduct<0, 6, 3>();
      Tiles::template AddProduct<1, 7, 3>();
      next_.Fetch(kPairsBesideTile);
      Tiles::template Store<0>(parts[0], sizeof parts[0][0]);
      Tiles::template Store<1>(parts[1], sizeof parts[1][0]);
    }
  }

  void AddParts(int64_t dim, float* sums) {
    alignas(64) static constexpr int32_t kFirst[] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    const __m512i first = _mm512_load_si512(kFirst);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(kTileRowCount / 2));
    for (int64_t query = 0; query < q_.group; ++query, sums += q_.value_dim) {
      next_.Fetch(beside_sums_);
      for (int64_t n = 0; n < dim; n += kStepInputs) {
        __m512 low = _mm512_loadu_ps(sums + n), high = _mm512_loadu_ps(sums + n + 16);
#pragma GCC unroll 2
        for (int64_t step = 0; step < kWeightSteps; ++step) {
          const auto& parts = scratch_.parts[step][n / kStepInputs];
          const __m512 even = _mm512_load_ps(parts[0][query]), odd = _mm512_load_ps(parts[1][query]);
          low = _mm512_add_ps(low, _mm512_permutex2var_ps(even, first, odd));
          high = _mm512_add_ps(high, _mm512_permutex2var_ps(even, second, odd));
        }
        _mm512_storeu_ps(sums + n, low);
        _mm512_storeu_ps(sums + n + 16, high);
      }
    }
  }

  const KvBlock& kv_;
  const int64_t tokens_;
  const TokenQueries& q_;
  AttentionScratch& scratch_;
  // The prefetch of the next block is spread evenly: half of it beside tiles, a sixteenth beside transposes, three
  // beside softmax and four beside sums.
  PendingPairs next_ = {kv_.next, kv_.next_bytes / kPairBytes};
  const int64_t sixteenth_ = kv_.next_bytes / kPairBytes / q_.kv_heads / 16;  // per head
  const int64_t beside_transpose_ = sixteenth_ / (halves() ? 2 : 4);
  const int64_t beside_softmax_ = CeilDiv(3 * sixteenth_, q_.group);
  const int64_t beside_sums_ = CeilDiv(4 * sixteenth_, q_.group* CeilDiv(q_.value_dim, kScaleBlock));
};

}  // namespace

template <typename Tiles>
static inline void Attend(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  AttentionScratch scratch;
  TokenAttention<Tiles>(kv, tokens, queries, scratch).Run();
}

}  // namespace moestro::amx
