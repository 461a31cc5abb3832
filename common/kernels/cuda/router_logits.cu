// The router's product in F32. A logit's inputs are cut into segments of 32. Each is summed in order by fused
// multiply-adds, and the segments' sums are added in order. Both kernels do this, so a row has the same bits in either.
//   few tokens   A block computes one expert for up to 8 tokens. A thread sums a segment. With one token the time is
//   that
//                of reading the weights, by a block for each expert.
//   many tokens  A block computes 64 tokens x 64 experts, a segment of both in shared memory at a time.
#include <cuda_runtime.h>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {
namespace {

constexpr int kSegment = 32;
constexpr int kPadded = kSegment + 4;  // of a segment or row in shared memory: 8 lanes' 16 bytes hit different banks

// Adds products of four inputs to a chain.
__device__ __forceinline__ float AddProducts(float4 x, float4 w, float sum) {
  sum = fmaf(x.x, w.x, sum);
  sum = fmaf(x.y, w.y, sum);
  sum = fmaf(x.z, w.z, sum);
  return fmaf(x.w, w.w, sum);
}
__device__ __forceinline__ float4 Four(const float* from) { return *reinterpret_cast<const float4*>(from); }

// ---- Few tokens

constexpr int kFewThreads = 128;
constexpr int kFewTokens = 8;                       // of a block
constexpr int kPassCols = kFewThreads * kSegment;   // a segment for each thread
constexpr int kPassFloats = kFewThreads * kPadded;  // of weights, or of a token's inputs
constexpr int kSumStride = kFewThreads + 1;         // of a token's sums: threads that add them hit different banks
constexpr int kFewFloats = 2 * kPassFloats + kFewTokens * kSumStride;

static_assert(kFewFloats * sizeof(float) <= kMaxSharedBytes);

// Begins to copy inputs [col, col + kPassCols) of a row, zeros past its end, to shared memory. kAtOnce: floats of a
// copy.
template <int kAtOnce>
__device__ __forceinline__ void CopyPass(const float* row, int64_t col, int64_t hidden, float* to) {
  const int first = static_cast<int>(threadIdx.x) * kAtOnce;
  const float* const from = row + col + first;
  const int left = static_cast<int>(min(int64_t{kPassCols}, hidden - col)) - first;
  float* const place = to + first / kSegment * kPadded + first % kSegment;
  constexpr int kStep = kFewThreads * kAtOnce;
#pragma unroll
  for (int i = 0; i < kPassCols / kStep; ++i) {
    float* const at = place + i * (kStep / kSegment * kPadded);
    if constexpr (kAtOnce == 4) {
      CopyAsync16(at, from + i * kStep, i * kStep < left ? 16 : 0);
    } else {
      CopyAsync4(at, from + i * kStep, i * kStep < left ? 4 : 0);
    }
  }
}

template <int kAtOnce>
__global__ void __launch_bounds__(kFewThreads)
    FewLogitsKernel(const float* w, int64_t experts, int64_t hidden, const float* x, int64_t tokens, float* logits) {
  constexpr int kLineFloats = 32;
  for (int64_t col = threadIdx.x * kLineFloats; col < hidden; col += kFewThreads * kLineFloats) {
    Prefetch(w + blockIdx.x * hidden + col);
  }
  BeginKernel();
  float* const weights = reinterpret_cast<float*>(DynamicShared());
  float* const inputs = weights + kPassFloats;
  float* const sums = inputs + kPassFloats;  // [kFewTokens] of each thread
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t expert = blockIdx.x, first = int64_t{blockIdx.y} * kFewTokens;
  const int count = static_cast<int>(min(int64_t{kFewTokens}, tokens - first));
  float total = 0;  // of the thread's token, in the first threads
  for (int64_t col = 0; col < hidden; col += kPassCols) {
    CopyPass<kAtOnce>(w + expert * hidden, col, hidden, weights);
    for (int token = 0; token < count; ++token) {
      CopyPass<kAtOnce>(x + (first + token) * hidden, col, hidden, inputs);
      CommitCopies();
      WaitCopies<0>();
      __syncthreads();
      float sum = 0;
#pragma unroll
      for (int c = 0; c < kSegment; c += 4) {
        sum = AddProducts(Four(inputs + thread * kPadded + c), Four(weights + thread * kPadded + c), sum);
      }
      sums[token * kSumStride + thread] = sum;
      __syncthreads();  // the inputs may be overwritten, and the sums are there
    }
    if (thread < count) {
      const int segments = static_cast<int>(min(int64_t{kFewThreads}, (hidden - col + kSegment - 1) / kSegment));
#pragma unroll 16
      for (int segment = 0; segment < segments; ++segment) total += sums[thread * kSumStride + segment];
    }
    __syncthreads();
  }
  if (thread < count) logits[(first + thread) * experts + expert] = total;
}

// ---- Many tokens

constexpr int kManyRows = 64;  // tokens of a block, and experts
constexpr int kManyThreads = 256;
constexpr int kThreadRows = 4;
constexpr int kRowStep = kManyRows / kThreadRows;
constexpr int kManyFloats = 2 * kManyRows * kPadded;
static_assert(kRowStep * kRowStep == kManyThreads);

// Inputs [col, col + kSegment) of rows from `first` on, zeros where there is none, to shared memory.
__device__ __forceinline__ void CopySegment(const float* rows, int64_t first, int64_t end, int64_t col, int64_t hidden,
                                            float* to) {
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < kManyRows * kSegment; at += kManyThreads) {
    const int row = at / kSegment, c = at % kSegment;
    to[row * kPadded + c] = first + row < end && col + c < hidden ? rows[(first + row) * hidden + col + c] : 0.0f;
  }
}

// A thread computes tokens i, i + 16, ... and experts j, j + 16, ...
__global__ void __launch_bounds__(kManyThreads)
    ManyLogitsKernel(const float* w, int64_t experts, int64_t hidden, const float* x, int64_t tokens, float* logits) {
  BeginKernel();
  float* const inputs = reinterpret_cast<float*>(DynamicShared());
  float* const weights = inputs + kManyRows * kPadded;
  const int i = static_cast<int>(threadIdx.x) / kRowStep, j = static_cast<int>(threadIdx.x) % kRowStep;
  const int64_t first_token = int64_t{blockIdx.x} * kManyRows, first_expert = int64_t{blockIdx.y} * kManyRows;
  float totals[kThreadRows][kThreadRows] = {};
  for (int64_t col = 0; col < hidden; col += kSegment) {
    CopySegment(x, first_token, tokens, col, hidden, inputs);
    CopySegment(w, first_expert, experts, col, hidden, weights);
    __syncthreads();
    float sums[kThreadRows][kThreadRows] = {};
#pragma unroll
    for (int c = 0; c < kSegment; c += 4) {
#pragma unroll
      for (int a = 0; a < kThreadRows; ++a) {
        const float4 input = Four(inputs + (i + kRowStep * a) * kPadded + c);
#pragma unroll
        for (int b = 0; b < kThreadRows; ++b) {
          sums[a][b] = AddProducts(input, Four(weights + (j + kRowStep * b) * kPadded + c), sums[a][b]);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kThreadRows; ++a) {
#pragma unroll
      for (int b = 0; b < kThreadRows; ++b) totals[a][b] += sums[a][b];
    }
    __syncthreads();
  }
#pragma unroll
  for (int a = 0; a < kThreadRows; ++a) {
#pragma unroll
    for (int b = 0; b < kThreadRows; ++b) {
      const int64_t token = first_token + i + kRowStep * a, expert = first_expert + j + kRowStep * b;
      if (token < tokens && expert < experts) logits[token * experts + expert] = totals[a][b];
    }
  }
}

// Above, blocks of 64 tokens read the weights less often than blocks of 8, and there are enough of them.
constexpr int64_t kMostFew = 64;

bool IsAligned(const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

unsigned Blocks(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

}  // namespace

LaunchResult LaunchRouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, int64_t tokens,
                                float* logits, Stream stream) {
  if (tokens == 0) return {};
  if (experts < 1 || hidden < 1) return {kInvalidArgument};
  if (tokens <= kMostFew) {
    const bool by_fours = hidden % 4 == 0 && IsAligned(w) && IsAligned(x);
    return Launch("router_logits", by_fours ? FewLogitsKernel<4> : FewLogitsKernel<1>,
                  dim3(static_cast<unsigned>(experts), Blocks(tokens, kFewTokens)), dim3(kFewThreads),
                  kFewFloats * sizeof(float), stream, w, experts, hidden, x, tokens, logits);
  }
  return Launch("router_logits", ManyLogitsKernel, dim3(Blocks(tokens, kManyRows), Blocks(experts, kManyRows)),
                dim3(kManyThreads), kManyFloats * sizeof(float), stream, w, experts, hidden, x, tokens, logits);
}

}  // namespace moestro::cuda
