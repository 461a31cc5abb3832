// Attention of one decoded token from the cache's rows, without packed blocks. Both products run over up to 16
// accumulators: 8 queries x 32 tokens, 4 queries x 64 dims. Rows are packed into L1 beside products that do not need
// them (attention_rows.h): a head's values beside its scores, the next head's keys beside its values.
//
// The order of sums is that of linear, softmax_step and linear_add, so the bits are the same. Scores: a chain over
// pairs of dims for each 128 of them. Values: a chain over pairs of tokens, added to the rescaled sums.
#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/attention_rows.h"
#include "common/kernels/cpu/avx512_bf16/attention_softmax.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/kernels/cpu/avx512_bf16/linear_pass.h"

namespace moestro::avx512_bf16 {

constexpr int64_t kScoreQueries = 8;
constexpr int64_t kValueQueries = 4;

struct AttentionScratch {
  PackedRows rows;
  alignas(64) uint16_t queries[kMaxTokenGroup][kScaleBlock];  // of the dims in use
  alignas(64) float scores[kMaxTokenGroup][kAttentionBlock];
  alignas(64) uint16_t weights[kMaxTokenGroup][kAttentionBlock];
  alignas(64) float rescales[kMaxTokenGroup];
};

namespace {  // for internal linkage of the members

template <bool kWhole>
class TokenAttention {
 public:
  TokenAttention(const KvBlock& kv, int64_t tokens, const TokenQueries& q, AttentionScratch& scratch)
      : kv_(kv), tokens_(tokens), q_(q), scratch_(scratch), next_(kv) {}

  void Run() {
    // The first head's keys have no products beside them, and fetch nothing.
    KeyPacker<kWhole>(Keys(0, 0), ChainDims(q_.key_dim, 0), scratch_.rows, NextLines()).Finish();
    for (int64_t head = 0; head < q_.kv_heads; ++head) {
      for (int64_t dim = 0; dim < q_.key_dim; dim += kScaleBlock) AddScores(head, dim);
      for (int64_t i = 0; i < q_.group; i += kSoftmaxQueries) {
        SoftmaxOfQueries(scratch_.scores + i, visible_, Min(kSoftmaxQueries, q_.group - i), q_.scale,
                         q_.states + head * q_.group + i, scratch_.weights + i, scratch_.rescales + i);
      }
      for (int64_t dim = 0; dim < q_.value_dim; dim += kScaleBlock) AddValues(head, dim);
    }
  }

 private:
  static int64_t ChainDims(int64_t dims, int64_t first) { return Min(kScaleBlock, dims - first); }
  Rows<kWhole> Keys(int64_t head, int64_t dim) const {
    return {kv_.keys + head * q_.key_dim + dim, kv_.key_stride, tokens_};
  }
  Rows<kWhole> Values(int64_t head, int64_t dim) const {
    return {kv_.values + head * q_.value_dim + dim, kv_.value_stride, tokens_};
  }

  // One chain of the head's scores. Beside the last one, its first values are packed.
  void AddScores(int64_t head, int64_t dim) {
    const int64_t dims = ChainDims(q_.key_dim, dim);
    if (dim > 0) Finish(KeyPacker<kWhole>(Keys(head, dim), dims, scratch_.rows, next_));
    for (int64_t i = 0; i < q_.group; ++i) {
      const uint16_t* query = q_.queries + head * q_.query_stride + i * q_.key_dim + dim;
      for (int64_t d = 0; d < dims; d += kStepDims) {
        _mm512_store_si512(scratch_.queries[i] + d, _mm512_loadu_si512(query + d));
      }
    }
    const Rows<kWhole> values = dim + dims == q_.key_dim ? Values(head, 0) : Rows<kWhole>{};
    ValuePacker<kWhole> side(values, ChainDims(q_.value_dim, 0), scratch_.rows, next_);
    const int64_t beside = (side.steps() + dims / 4 - 1) / (dims / 4);  // of 8 dims x 32 tokens
    for (int64_t tile = 0; tile < kTokenTiles; tile += 2) {
      for (int64_t i = 0; i < q_.group; i += kScoreQueries) {
        WithNumber<kScoreQueries>(
            Min(kScoreQueries, q_.group - i), [&](auto queries) __attribute__((always_inline)) {
              AddScoresOfTiles<queries.value>(i, tile, dims, dim == 0, side, i == 0 ? beside : 0);
            });
      }
    }
    Finish(side);
  }

  template <typename Packer>
  void Finish(Packer packer) {
    packer.Finish();
    next_ = packer.next();
  }

  // The next kQueries queries, 32 tokens.
  template <int kQueries>
  [[gnu::noinline]] void AddScoresOfTiles(int64_t first, int64_t tile, int64_t dims, bool is_first,
                                          ValuePacker<kWhole>& values, int64_t beside) {
    ValuePacker<kWhole> side = values;  // in registers
    const uint16_t(*queries)[kScaleBlock] = scratch_.queries + first;
    __m512 sums[kQueries][2];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int64_t dim = 0; dim < dims; dim += 8) {
      for (int64_t step = 0; step < beside; ++step) side.Step();
      __m512i pairs[2][4];
      FinishTranspose(scratch_.rows.keys[dim / 8][tile], pairs[0]);
      FinishTranspose(scratch_.rows.keys[dim / 8][tile + 1], pairs[1]);
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        KeepOrder();
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
          const __m512i pair = Pair(queries[i] + dim + 2 * p);
          sums[i][0] = DotPairs(sums[i][0], pairs[0][p], pair);
          sums[i][1] = DotPairs(sums[i][1], pairs[1][p], pair);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      float* scores = scratch_.scores[first + i] + tile * 16;
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(scores + t * 16);
        _mm512_store_ps(scores + t * 16, _mm512_add_ps(before, sums[i][t]));
      }
    }
    values = side;
  }

  // Sums of some of the head's values. Beside the last of them, the next head's first keys are packed.
  void AddValues(int64_t head, int64_t dim) {
    const int64_t dims = ChainDims(q_.value_dim, dim);
    if (dim > 0) Finish(ValuePacker<kWhole>(Values(head, dim), dims, scratch_.rows, next_));
    const bool is_last = dim + dims == q_.value_dim;
    const Rows<kWhole> keys = is_last && head + 1 < q_.kv_heads ? Keys(head + 1, 0) : Rows<kWhole>{};
    KeyPacker<kWhole> side(keys, is_last ? ChainDims(q_.key_dim, 0) : 0, scratch_.rows, next_);
    // Token pairs of all passes, to each step of the packer: 1, 2 or 4 of them.
    const int64_t pairs = kAttentionBlock / 2 * ((dims + 63) / 64) * ((q_.group + kValueQueries - 1) / kValueQueries);
    const int64_t every = pairs >= 4 * side.steps() ? 4 : pairs >= 2 * side.steps() ? 2 : 1;
    float* sums = q_.sums + head * q_.group * q_.value_dim + dim;
    for (int64_t d = 0; d < dims; d += 64) {
      for (int64_t i = 0; i < q_.group; i += kValueQueries) {
        WithNumber<kValueQueries>(
            Min(kValueQueries, q_.group - i), [&](auto queries) __attribute__((always_inline)) {
              float* out = sums + i * q_.value_dim + d;
              if (dims - d >= 64) {
                AddValuesOfDims<queries.value, 4>(i, d, dims, out, side, every);
              } else {
                AddValuesOfDims<queries.value, 2>(i, d, dims, out, side, every);
              }
            });
      }
    }
    Finish(side);
  }

  // The next kQueries queries, kDimVectors x 16 dims of the block's `dims`.
  template <int kQueries, int kDimVectors>
  [[gnu::noinline]] void AddValuesOfDims(int64_t first, int64_t dim, int64_t dims, float* out, KeyPacker<kWhole>& keys,
                                         int64_t every) {
    KeyPacker<kWhole> side = keys;  // in registers
    const uint16_t(*weights)[kAttentionBlock] = scratch_.weights + first;
    const uint16_t(*values)[32] = scratch_.rows.values + dim / 16;
    __m512 sums[kQueries][kDimVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kDimVectors; ++v) sums[i][v] = _mm512_setzero_ps();
    }
    for (int64_t p = 0; p < kAttentionBlock / 2; ++p, values += dims / 16) {
      if ((p & (every - 1)) == 0) side.Step();
      KeepOrder();
      __m512i x[kDimVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kDimVectors; ++v) x[v] = _mm512_load_si512(values[v]);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const __m512i pair = Pair(weights[i] + 2 * p);
#pragma GCC unroll 4
        for (int v = 0; v < kDimVectors; ++v) sums[i][v] = DotPairs(sums[i][v], x[v], pair);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i, out += q_.value_dim) {
      const __m512 rescale = _mm512_set1_ps(scratch_.rescales[first + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kDimVectors; ++v) {  // two roundings, as in linear_add; a factor of 1 changes nothing
        const __m512 before = _mm512_mul_ps(_mm512_loadu_ps(out + v * 16), rescale);
        _mm512_storeu_ps(out + v * 16, _mm512_add_ps(before, sums[i][v]));
      }
    }
    keys = side;
  }

  const KvBlock& kv_;
  const int64_t tokens_;
  const TokenQueries& q_;
  AttentionScratch& scratch_;
  NextLines next_;
  const uint64_t visible_ = (~uint64_t{0} >> (kAttentionBlock - tokens_)) & (~uint64_t{0} << q_.first_token);
};

}  // namespace

void AttendToken(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  AttentionScratch scratch;
  if (tokens == kAttentionBlock) {
    TokenAttention<true>(kv, tokens, queries, scratch).Run();
  } else {
    TokenAttention<false>(kv, tokens, queries, scratch).Run();
  }
}

}  // namespace moestro::avx512_bf16
