// Attention of one decoded token, from packed blocks. Tile products take keys and values as they lie: keys are the
// second factor of the queries, values that of the weights. So the bits are those of linear and linear_add. The next
// block is prefetched meanwhile.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/tiles.h"
#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/softmax.h"

namespace moestro::amx {

constexpr int64_t kWeightSteps = kAttentionBlock / kStepInputs;
// KV heads processed together: first their scores and weights, then their values. Their weights stay in L1.
constexpr int64_t kHeadsTogether = 8;
// Pairs of the next block prefetched beside each tile of keys or values, which has 4.
constexpr int64_t kPairsBesideTile = 2;

// Tiles 0 to 3 hold sums, tile 4 queries or weights: a row per query. Tiles 5 to 7 hold keys or values.
static constexpr TileConfig MakeTokenConfig(int64_t queries) {
  TileConfig config = kTileConfig;
  for (int tile = 0; tile <= 4; ++tile) config.rows[tile] = static_cast<uint8_t>(queries);
  return config;
}

struct AttentionScratch {
  // Double-buffered by head: tile stores should have left the store buffer before vector loads read them.
  alignas(64) float scores[2][kTileRowCount][kAttentionBlock];
  alignas(64) uint16_t weights[kHeadsTogether][kTileRowCount][kAttentionBlock];
};

namespace {  // for internal linkage of the members

template <typename Tiles>
class TokenAttention {
 public:
  TokenAttention(const KvBlock& kv, int64_t tokens, const TokenQueries& q, AttentionScratch& scratch)
      : kv_(kv), tokens_(tokens), q_(q), scratch_(scratch) {}

  void Run() {
    Tiles::Configure(MakeTokenConfig(q_.group));
    for (int64_t head = 0; head < q_.kv_heads; head += kHeadsTogether) {
      AttendHeads(head, Min(q_.kv_heads, head + kHeadsTogether));
    }
  }

 private:
  void AttendHeads(int64_t begin, int64_t end) {
    Scores(begin);
    for (int64_t head = begin; head < end; ++head) {
      if (head + 1 < end) Scores(head + 1);
      Weights(head);
    }
    for (int64_t head = begin; head < end; ++head) AddValues(head);
  }

  // One chain of products over all dims.
  void Scores(int64_t head) {
    const uint8_t* keys = kv_.packed + head * kv_.head_bytes;
    const uint16_t* queries = q_.queries + head * q_.query_stride;
    float* scores = scratch_.scores[head % 2][0];
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
    for (int64_t dim = 0; dim < q_.key_dim; dim += kStepInputs) {
      Tiles::template Load<4>(queries + dim, q_.key_dim * 2);
      Multiply(keys + dim / 2 * kPairBytes, kAttentionBlock);
    }
    Tiles::template Store<0>(scores, sizeof scratch_.scores[0][0]);
    Tiles::template Store<1>(scores + 16, sizeof scratch_.scores[0][0]);
    Tiles::template Store<2>(scores + 32, sizeof scratch_.scores[0][0]);
    Tiles::template Store<3>(scores + 48, sizeof scratch_.scores[0][0]);
  }

  // Adds the product of tile 4 and 16 pairs of inputs for `rows` rows of a group.
  [[gnu::always_inline]] inline void Multiply(const uint8_t* pairs, int64_t rows) {
    MultiplyTile<0, 5>(pairs);
    MultiplyTile<1, 6>(pairs + 64);
    if (rows < kRowGroup) return;  // kTokenDims of them
    MultiplyTile<2, 7>(pairs + 128);
    MultiplyTile<3, 5>(pairs + 192);
  }
  template <int kSums, int kTile>
  [[gnu::always_inline]] inline void MultiplyTile(const uint8_t* pairs) {
    Tiles::template Load<kTile>(pairs, kPairBytes);
    Tiles::template AddProduct<kSums, 4, kTile>();
    next_.Fetch(kPairsBesideTile);
  }

  // Turns scores into weights, and rescales the sums so far to the new maxima.
  void Weights(int64_t head) {
    float(*scores)[kAttentionBlock] = scratch_.scores[head % 2];
    SoftmaxState* states = q_.states + head * q_.group;
    float maxima[kTileRowCount];
    alignas(64) float shifts[kTileRowCount] = {};
    for (int64_t query = 0; query < q_.group; ++query) {
      for (int64_t token = 0; token < q_.first_token; ++token) scores[query][token] = -__builtin_inff();
      const float before = states[query].max_score;
      const float greatest = avx512::GreatestScore(scores[query], tokens_, q_.scale);
      maxima[query] = greatest > before ? greatest : before;
      shifts[query] = before - maxima[query];
    }
    alignas(64) float rescales[kTileRowCount];
    _mm512_store_ps(rescales, avx512::Exp(_mm512_load_ps(shifts)));
    for (int64_t query = 0; query < q_.group; ++query) {
      const float sum = avx512::StoreWeights(scores[query], tokens_, kAttentionBlock, q_.scale, maxima[query],
                                             scratch_.weights[head % kHeadsTogether][query]);
      states[query] = {maxima[query], __builtin_fmaf(states[query].sum, rescales[query], sum)};
      next_.Fetch(beside_softmax_);
      if (rescales[query] == 1) continue;  // no new maximum, as in most blocks
      Rescale(rescales[query], q_.sums + (head * q_.group + query) * q_.value_dim);
    }
  }

  void Rescale(float factor, float* sums) const {
    for (int64_t n = 0; n < q_.value_dim; n += 16) {
      _mm512_storeu_ps(sums + n, _mm512_mul_ps(_mm512_loadu_ps(sums + n), _mm512_set1_ps(factor)));
    }
  }

  // The sums begin where they are: a row group's dims at a time.
  void AddValues(int64_t head) {
    const uint8_t* values = kv_.packed + head * kv_.head_bytes + kv_.packed_values;
    float* sums = q_.sums + head * q_.group * q_.value_dim;
    for (int64_t dim = 0; dim < q_.value_dim; dim += kRowGroup, values += kAttentionBlock / 2 * kPairBytes) {
      const int64_t dims = Min(kRowGroup, q_.value_dim - dim);
      LoadSums(sums + dim, dims);
      for (int64_t step = 0; step < kWeightSteps; ++step) {
        Tiles::template Load<4>(scratch_.weights[head % kHeadsTogether][0] + step * kStepInputs,
                                sizeof scratch_.weights[0][0]);
        Multiply(values + step * kStepInputs / 2 * kPairBytes, dims);
      }
      StoreSums(sums + dim, dims);
    }
  }
  void LoadSums(const float* sums, int64_t dims) const {
    Tiles::template Load<0>(sums, q_.value_dim * 4);
    Tiles::template Load<1>(sums + 16, q_.value_dim * 4);
    if (dims < kRowGroup) return;
    Tiles::template Load<2>(sums + 32, q_.value_dim * 4);
    Tiles::template Load<3>(sums + 48, q_.value_dim * 4);
  }
  void StoreSums(float* sums, int64_t dims) const {
    Tiles::template Store<0>(sums, q_.value_dim * 4);
    Tiles::template Store<1>(sums + 16, q_.value_dim * 4);
    if (dims < kRowGroup) return;
    Tiles::template Store<2>(sums + 32, q_.value_dim * 4);
    Tiles::template Store<3>(sums + 48, q_.value_dim * 4);
  }

  const KvBlock& kv_;
  const int64_t tokens_;
  const TokenQueries& q_;
  AttentionScratch& scratch_;
  // The prefetch of the next block is spread evenly: half of it beside tiles, half beside softmax.
  PendingPairs next_ = {kv_.next, kv_.next_bytes / kPairBytes};
  const int64_t beside_softmax_ = CeilDiv(kv_.next_bytes / kPairBytes / 2, q_.kv_heads* q_.group);
};

}  // namespace

template <typename Tiles>
static inline void Attend(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  AttentionScratch scratch;
  TokenAttention<Tiles>(kv, tokens, queries, scratch).Run();
}

}  // namespace moestro::amx
