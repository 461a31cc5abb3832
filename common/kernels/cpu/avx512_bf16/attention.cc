// Attention of one decoded token, from packed blocks, in the order of addresses: a head's keys, then its values. Both
// products run over up to 16 accumulators: 4 queries x 64 tokens, 4 queries x 64 dims.
//
// The order of sums is that of linear, softmax_step and linear_add, so the bits are the same. Scores: a chain over
// pairs of dims for each 128 of them. Values: a chain over pairs of tokens, added to the rescaled sums.
#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/linear_pass.h"
#include "common/kernels/cpu/avx512_bf16/attention_softmax.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"

namespace moestro::avx512_bf16 {

using avx512::Min;
using avx512::WithNumber;

constexpr int64_t kTileQueries = 4;
// Pairs of dims, 4 KiB of keys, that all queries use before the next: they are in L1 for the last of them.
constexpr int64_t kChunkPairs = 16;
// Lines are fetched this far ahead of their use, into L2. Zen 4 reaches 0.94 of read bandwidth with 16 to 64 KiB, 0.73
// with 16 KiB and L1 in place of L2.
constexpr int64_t kAheadBytes = 32768;
constexpr int kGroupVectors = kRowGroup / 16;  // of 64 tokens, or dims
constexpr int64_t kPairElements = 2 * kRowGroup;

struct AttentionScratch {
  alignas(64) float scores[kMaxTokenGroup][kAttentionBlock];
  alignas(64) float chain[kMaxTokenGroup][kAttentionBlock];  // of the dims after the first 128
  alignas(64) uint16_t weights[kMaxTokenGroup][kAttentionBlock];
  alignas(64) float rescales[kMaxTokenGroup];
};

namespace {  // for internal linkage of the members

// The block's memory, from kAheadBytes on, then the next block's first kAheadBytes.
class LinesAhead {
 public:
  LinesAhead(const KvBlock& kv, int64_t kv_heads)
      : at_(kv.packed + kAheadBytes), end_(kv.packed + kv_heads * kv.head_bytes), next_(kv.next) {}

  // The next four lines.
  [[gnu::always_inline]] inline void Fetch() {
    if (at_ >= end_) [[unlikely]] {
      if (next_ == nullptr) return;
      at_ = next_ + (at_ - end_);
      end_ = next_ + kAheadBytes;
      next_ = nullptr;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) _mm_prefetch(reinterpret_cast<const char*>(at_ + i * 64), _MM_HINT_T1);
    at_ += 256;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  const uint8_t* next_;
};

class TokenAttention {
 public:
  TokenAttention(const KvBlock& kv, int64_t tokens, const TokenQueries& q, AttentionScratch& scratch)
      : kv_(kv), tokens_(tokens), q_(q), scratch_(scratch), ahead_(kv, q.kv_heads) {}

  void Run() {
    for (int64_t head = 0; head < q_.kv_heads; ++head) {
      const uint8_t* keys = kv_.packed + head * kv_.head_bytes;
      for (int64_t dim = 0; dim < q_.key_dim; dim += kScaleBlock) {
        AddChains(head, reinterpret_cast<const uint16_t*>(keys), dim);
      }
      for (int64_t i = 0; i < q_.group; i += kSoftmaxQueries) {
        SoftmaxOfQueries(scratch_.scores + i, visible_, Min(kSoftmaxQueries, q_.group - i), q_.scale,
                         q_.states + head * q_.group + i, scratch_.weights + i, scratch_.rescales + i);
      }
      AddValues(head, reinterpret_cast<const uint16_t*>(keys + kv_.packed_values));
    }
  }

 private:
  // Scores over the kScaleBlock dims from `dim` on.
  void AddChains(int64_t head, const uint16_t* keys, int64_t dim) {
    const int64_t end = Min(q_.key_dim, dim + kScaleBlock);
    float(*sums)[kAttentionBlock] = dim == 0 ? scratch_.scores : scratch_.chain;
    for (int64_t d = dim; d < end; d += 2 * kChunkPairs) {  // a multiple of kTokenDims
      for (int64_t i = 0; i < q_.group; i += kTileQueries) {
        const uint16_t* queries = q_.queries + head * q_.query_stride + i * q_.key_dim + d;
        WithNumber<kTileQueries>(
            Min(kTileQueries, q_.group - i), [&](auto n) __attribute__((always_inline)) {
              AddChunk<n.value>(keys + d / 2 * kPairElements, queries, sums + i, d == dim);
            });
      }
    }
    if (dim == 0) return;
    for (int64_t i = 0; i < q_.group; ++i) {
      for (int64_t t = 0; t < kAttentionBlock; t += 16) {
        float* score = scratch_.scores[i] + t;
        _mm512_store_ps(score, _mm512_add_ps(_mm512_load_ps(score), _mm512_load_ps(scratch_.chain[i] + t)));
      }
    }
  }

  // kChunkPairs pairs of dims, all tokens, kQueries queries.
  template <int kQueries>
  [[gnu::noinline]] void AddChunk(const uint16_t* keys, const uint16_t* queries, float (*scores)[kAttentionBlock],
                                  bool first) {
    static_assert(2 * kChunkPairs == kTokenDims);
    LinesAhead ahead = ahead_;  // in registers
    const int64_t stride = q_.key_dim;
    __m512 sums[kQueries][kGroupVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVectors; ++v) {
        sums[i][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(scores[i] + v * 16);
      }
    }
#pragma GCC unroll 4
    for (int64_t p = 0; p < kChunkPairs; ++p, keys += kPairElements, queries += 2) {
      if ((p & between_) == 0) ahead.Fetch();
      AddPair(keys, queries, stride, sums);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVectors; ++v) _mm512_store_ps(scores[i] + v * 16, sums[i][v]);
    }
    ahead_ = ahead;
  }

  // sums += a pair of inputs for 64 rows, times the pair of each of kQueries rows of x.
  template <int kQueries>
  [[gnu::always_inline]] static inline void AddPair(const uint16_t* tiles, const uint16_t* x, int64_t x_stride,
                                                    __m512 (&sums)[kQueries][kGroupVectors]) {
    KeepOrder();
    __m512i w[kGroupVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kGroupVectors; ++v) w[v] = _mm512_load_si512(tiles + v * 32);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const __m512i pair = Pair(x + i * x_stride);
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVectors; ++v) sums[i][v] = DotPairs(sums[i][v], w[v], pair);
    }
  }

  void AddValues(int64_t head, const uint16_t* values) {
    float* sums = q_.sums + head * q_.group * q_.value_dim;
    for (int64_t dim = 0; dim < q_.value_dim; dim += kRowGroup) {
      for (int64_t i = 0; i < q_.group; i += kTileQueries) {
        WithNumber<kTileQueries>(
            Min(kTileQueries, q_.group - i), [&](auto n) __attribute__((always_inline)) {
              AddValuesOfDims<n.value>(values + dim * kAttentionBlock, i, Min(kRowGroup, q_.value_dim - dim),
                                       sums + i * q_.value_dim + dim);
            });
      }
    }
  }

  // `dims` dims, a row group or its beginning, of kQueries queries.
  template <int kQueries>
  [[gnu::noinline]] void AddValuesOfDims(const uint16_t* values, int64_t first, int64_t dims, float* out) {
    LinesAhead ahead = ahead_;  // in registers
    const uint16_t* weights = scratch_.weights[first];
    __m512 sums[kQueries][kGroupVectors];
    ClearSums(sums);
#pragma GCC unroll 2
    for (int64_t p = 0; p < kAttentionBlock / 2; ++p, values += kPairElements, weights += 2) {
      if ((p & between_) == 0) ahead.Fetch();
      AddPair(values, weights, kAttentionBlock, sums);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i, out += q_.value_dim) {
      const __m512 rescale = _mm512_set1_ps(scratch_.rescales[first + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVectors; ++v) {  // two roundings, as in linear_add; a factor of 1 changes nothing
        if (v * 16 >= dims) break;
        const __m512 before = _mm512_mul_ps(_mm512_loadu_ps(out + v * 16), rescale);
        _mm512_storeu_ps(out + v * 16, _mm512_add_ps(before, sums[i][v]));
      }
    }
    ahead_ = ahead;
  }

  const KvBlock& kv_;
  const int64_t tokens_;
  const TokenQueries& q_;
  AttentionScratch& scratch_;
  LinesAhead ahead_;
  // Fetches are spread over the passes of 1, 2 or 4 tiles of queries: one for every 1, 2 or 4 pairs.
  const int64_t between_ = q_.group <= kTileQueries ? 0 : q_.group <= 3 * kTileQueries ? 1 : 3;
  const uint64_t visible_ = (~uint64_t{0} >> (kAttentionBlock - tokens_)) & (~uint64_t{0} << q_.first_token);
};

}  // namespace

void AttendToken(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) {
  AttentionScratch scratch;
  TokenAttention(kv, tokens, queries, scratch).Run();
}

}  // namespace moestro::avx512_bf16
