// attention_tile.cuh by groups of four warps (wgmma.cuh): 64 queries a group, keys and values as operand B, which a
// product reads from shared memory. Values lie there as in the cache, a row a token, so their product takes them
// transposed.
//
// A pass of the main loop begins the scores of the next block and, behind them, this block's O += P V. While the latter
// runs, scores become weights. So a block's keys are needed a pass before its values: both have two places, and one
// barrier a pass orders all.
#include <type_traits>

#include "common/kernels/cuda/attention_tile.cuh"
#include "common/kernels/cuda/wgmma_attention.cuh"

namespace moestro::cuda {
namespace {

constexpr int kFragments = 8;  // of a product: 64 columns

// S = Q K^T
template <int kKeyDim>
__device__ __forceinline__ void BeginScores(const uint32_t (&q)[kKeyDim / 16][4], uint64_t keys,
                                            float (&scores)[kTokenFragments][4]) {
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
    ProductBf16(Accumulators(scores[0]), q[k], Further(keys, k / 4 * kPartBytes + k % 4 * 32), k > 0);
  }
  CommitProducts();
}

// O += P V
template <int kValueDim>
__device__ __forceinline__ void BeginValues(const uint32_t (&weights)[kTokens / 16][4], uint64_t values,
                                            float (&out)[kValueDim / 8][4]) {
#pragma unroll
  for (int k = 0; k < kTokens / 16; ++k) {
#pragma unroll
    for (int part = 0; part < kValueDim / kPartElements; ++part) {
      ProductBf16Transposed(Accumulators(out[kFragments * part]), weights[k],
                            Further(values, part * kPartBytes + k * 16 * kSwizzledRowBytes), true);
    }
  }
  CommitProducts();
}

// Waits for all products, which have read `weights` and added to `out`.
template <int kValueDim>
__device__ __forceinline__ void EndValues(uint32_t (&weights)[kTokens / 16][4], float (&out)[kValueDim / 8][4]) {
  static_assert(kTokens / 16 == 4);
  WaitProducts<0>(weights[0], weights[1], weights[2], weights[3], Accumulators(out[0]));
  if constexpr (kValueDim > kPartElements) WaitProducts<0>(Accumulators(out[kFragments]));
}

template <typename G>
__global__ void __launch_bounds__(kAttentionThreads)
    WgmmaAttentionKernel(const __grid_constant__ PrefillAttentionArgs args) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const AttentionTile tile(args);
  uint8_t* const keys = SwizzledShared();
  uint8_t* const values = keys + 2 * G::kKeyBytes;
  const uint64_t key_rows = SwizzledRows(keys), value_rows = SwizzledRows(values);
  const auto place = [](int64_t block) { return static_cast<int>(block % 2); };
  const auto keys_of = [&](int64_t block) { return Further(key_rows, place(block) * G::kKeyBytes); };
  const auto values_of = [&](int64_t block) { return Further(value_rows, place(block) * G::kValueBytes); };
  const auto copy_keys = [&](int64_t block) {
    if (block < tile.blocks) CopyKeys<G>(args, tile, block, keys + place(block) * G::kKeyBytes);
  };
  const auto copy_values = [&](int64_t block) {
    CopyValues<G>(args, tile, block, values + place(block) * G::kValueBytes);
  };
  // What has been copied is there for the products of all.
  const auto await_copies = [] {
    WaitCopies<0>();
    FenceWrites();
    __syncthreads();
  };

  uint32_t q[G::kKeyDim / 16][4];
  LoadQueries<G::kKeyDim>(args, tile, g, t, q);
  RowState<G::kValueDim> state;
  const float scale = args.scale * kLog2E;
  float scores[kTokenFragments][4], rescale[2];
  uint32_t weights[kTokens / 16][4];
  // A pass: adds the block, and makes weights of the next one.
  const auto pass = [&](int64_t block, auto hides) {
    // The block's values and the next one's keys have arrived. All are done with the values before and with its keys.
    await_copies();
    copy_keys(block + 2);
    copy_values(block + 1);
    CommitCopies();
    FenceProducts();
    BeginScores<G::kKeyDim>(q, keys_of(block + 1), scores);
    BeginValues<G::kValueDim>(weights, values_of(block), state.out);
    WaitProducts<1>(Accumulators(scores[0]));
    if constexpr (decltype(hides)::value) tile.Hide(args.window, block + 1, g, t, scores);
    Softmax(scores, scale, state, rescale);
    EndValues<G::kValueDim>(weights, state.out);
    Rescale(rescale, state);
    RoundWeights(scores, state, weights);
  };
  if (kHasProducts && tile.first_block < tile.blocks) {
    int64_t block = tile.first_block;
    copy_keys(block);
    CommitCopies();
    await_copies();
    copy_keys(block + 1);
    copy_values(block);
    CommitCopies();
    FenceProducts();
    BeginScores<G::kKeyDim>(q, keys_of(block), scores);
    WaitProducts<0>(Accumulators(scores[0]));
    tile.Hide(args.window, block, g, t, scores);
    Softmax(scores, scale, state, rescale);
    RoundWeights(scores, state, weights);
    // Most blocks are seen whole, by all rows.
    const int64_t whole = args.window == 0 ? min(tile.tokens, tile.position + tile.first_row + 1) / kTokens : 0;
#pragma unroll 1
    for (; block + 1 < whole; ++block) pass(block, std::false_type());
#pragma unroll 1
    for (; block + 1 < tile.blocks; ++block) pass(block, std::true_type());
    await_copies();
    FenceProducts();
    BeginValues<G::kValueDim>(weights, values_of(block), state.out);
    EndValues<G::kValueDim>(weights, state.out);
  }
  StoreRows(args, tile, g, t, state);
}

}  // namespace

LaunchResult LaunchWgmmaAttention(const PrefillAttentionArgs& args, Stream stream) {
  return LaunchForKeys(args, [&]<typename G>(G, dim3 grid) {
    return Launch("wgmma_attention", WgmmaAttentionKernel<G>, grid, dim3(kAttentionThreads), G::kSharedBytes, stream,
                  args);
  });
}

}  // namespace moestro::cuda
