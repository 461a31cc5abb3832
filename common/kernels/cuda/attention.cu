// attention_tile.cuh by warps (mma.sync). The next block's keys and values are copied (cp.async) while this one's are
// multiplied. The 8 rows of an ldmatrix at one column hit different banks.
#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/attention_tile.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/wgmma_attention.cuh"

namespace moestro::cuda {
namespace {

// S = Q K^T
template <int kKeyDim>
__device__ __forceinline__ void Scores(const uint32_t (&q)[kKeyDim / 16][4], uint8_t* keys, int lane,
                                       float (&scores)[kTokenFragments][4]) {
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
  }
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kTokenFragments; n += 2) {
      uint32_t b[4];  // two fragments of 8 tokens, two registers each
      LoadMatrixX4(b, Chunk(keys, n * 8 + matrix / 2 * 8 + row, 2 * k + matrix % 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      MmaBf16(scores[n], q[k], first);
      MmaBf16(scores[n + 1], q[k], second);
    }
  }
}

// O += P V
template <int kValueDim>
__device__ __forceinline__ void AddValues(const uint32_t (&weights)[kTokens / 16][4], uint8_t* values, int lane,
                                          RowState<kValueDim>& state) {
  const int matrix = lane / 8, row = lane % 8;
#pragma unroll
  for (int k = 0; k < kTokens / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kValueDim / 8; n += 2) {
      uint32_t b[4];
      LoadMatrixX4Transposed(b, Chunk(values, k * 16 + matrix % 2 * 8 + row, n + matrix / 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      MmaBf16(state.out[n], weights[k], first);
      MmaBf16(state.out[n + 1], weights[k], second);
    }
  }
}

template <typename G>
__global__ void __launch_bounds__(kAttentionThreads) PrefillAttentionKernel(PrefillAttentionArgs args) {
  BeginKernel();
  constexpr int kBlockBytes = G::kKeyBytes + G::kValueBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const AttentionTile tile(args);
  uint8_t* const shared = SwizzledShared();
  const auto copy_block = [&](int64_t block) {
    uint8_t* const keys = shared + block % 2 * kBlockBytes;
    CopyKeys<G>(args, tile, block, keys);
    CopyValues<G>(args, tile, block, keys + G::kKeyBytes);
  };

  if (tile.first_block < tile.blocks) copy_block(tile.first_block);
  CommitCopies();
  uint32_t q[G::kKeyDim / 16][4];
  LoadQueries<G::kKeyDim>(args, tile, g, t, q);
  RowState<G::kValueDim> state;
  const float scale = args.scale * kLog2E;
  for (int64_t block = tile.first_block; block < tile.blocks; ++block) {
    if (block + 1 < tile.blocks) copy_block(block + 1);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();  // the block has arrived
    // A warp skips the block if all its rows precede it, or see only later ones.
    if (block * kTokens <= tile.position + tile.warp_row + 15 &&
        (block + 1) * kTokens > tile.FirstSeen(args.window, tile.warp_row)) {
      uint8_t* const keys = shared + block % 2 * kBlockBytes;
      float scores[kTokenFragments][4], rescale[2];
      uint32_t weights[kTokens / 16][4];
      Scores<G::kKeyDim>(q, keys, lane, scores);
      tile.Hide(args.window, block, g, t, scores);
      Softmax(scores, scale, state, rescale);
      RoundWeights(scores, state, weights);
      Rescale(rescale, state);
      AddValues<G::kValueDim>(weights, keys + G::kKeyBytes, lane, state);
    }
    __syncthreads();  // all warps are done with the block: the next copy overwrites it
  }
  StoreRows(args, tile, g, t, state);
}

// One warp per row and head.
__global__ void __launch_bounds__(kAttentionThreads) MergeAttentionKernel(MergeAttentionArgs args) {
  BeginKernel();
  const int64_t at = int64_t{blockIdx.x} * kAttentionWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (at >= args.rows * args.heads) return;
  const bool merges = args.part != nullptr;
  const float a = args.total_log_sum[at], b = merges ? args.part_log_sum[at] : a;
  const float greatest = fmaxf(a, b);
  const bool any = greatest > __uint_as_float(0xff800000u);
  const float weight_a = any ? expf(a - greatest) : 0.0f, weight_b = any ? expf(b - greatest) : 0.0f;
  const float sum = weight_a + weight_b;
  const int64_t row = at / args.heads, head = at % args.heads;
  const float log_sum = merges && any ? greatest + logf(sum) : greatest;
  const float share = ShareOfTokens(args.sinks, head, log_sum);
  for (int64_t i = lane; i < args.value_dim; i += 32) {
    float& total = args.total[at * args.value_dim + i];
    if (merges) total = any ? fmaf(weight_b, args.part[at * args.value_dim + i], weight_a * total) / sum : 0.0f;
    if (args.out != nullptr) {
      args.out[row * args.out_stride + head * args.value_dim + i] =
          static_cast<uint16_t>(PackBf16(total * share, 0.0f));
    }
  }
  __syncwarp();  // all lanes have read the old log-sum
  if (merges && lane == 0) args.total_log_sum[at] = log_sum;
}

bool IsAligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }
bool IsAligned(const KvVectors& v) {
  return IsAligned(v.data, 16) && v.page_stride % 8 == 0 && v.token_stride % 8 == 0 && v.head_stride % 8 == 0;
}

}  // namespace

LaunchResult LaunchPrefillAttention(const PrefillAttentionArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.kv_heads < 1 || args.heads % args.kv_heads != 0 || args.heads > 65535 || args.position < 0 ||
      args.out_stride % 2 != 0 || args.query_stride % 2 != 0 || !IsAligned(args.queries, 4) ||
      !IsAligned(args.out, 4) || !IsAligned(args.keys) || !IsAligned(args.shared_keys) || !IsAligned(args.values) ||
      args.value_dim != (args.key_dim == 64 ? 64 : 128) || args.window < 0 || args.first_token < 0 ||
      args.first_token % kKvBlock != 0 || args.tokens < 0 || (args.partial != nullptr && args.log_sum == nullptr) ||
      (args.partial == nullptr && args.first_token > args.position)) {
    return {kInvalidArgument};
  }
  const bool has_shared = args.shared_keys.data != nullptr;
  if (has_shared ? args.key_dim != 192 : args.key_dim != 128 && args.key_dim != 64) return {kInvalidArgument};
  if (HasWgmma()) return LaunchWgmmaAttention(args, stream);
  return LaunchForKeys(args, [&]<typename G>(G, dim3 grid) {
    return Launch("prefill_attention", PrefillAttentionKernel<G>, grid, dim3(kAttentionThreads), G::kSharedBytes,
                  stream, args);
  });
}

LaunchResult LaunchMergeAttention(const MergeAttentionArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  const dim3 grid(static_cast<unsigned>((args.rows * args.heads + kAttentionWarps - 1) / kAttentionWarps));
  return Launch("merge_attention", MergeAttentionKernel, grid, dim3(kAttentionThreads), 0, stream, args);
}

}  // namespace moestro::cuda
