// A block computes a row group of the packed layout (64 rows of the matrix) for up to 1, 4 or 8 rows of the batch.
// Thread i of 256 takes rows 4 (i % 16) .. + 3 and every 16th step of inputs, so a warp reads 512 consecutive bytes of
// weights. Plain arithmetic: with few rows, reading the weights takes all the time.
#include <cuda_runtime.h>

#include "common/kernels/cuda/f16.cuh"
#include "common/kernels/cuda/fp8.cuh"
#include "common/kernels/cuda/head_linear.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {
namespace {

constexpr int kQuads = static_cast<int>(kRowGroup) / 4;
constexpr int kParts = 16;  // parts of the inputs
constexpr int kThreads = kQuads * kParts;
constexpr int kWarps = kThreads / 32;
constexpr int kStepBytes = 256;
constexpr int kLineBytes = 128;
static_assert(kQuads == 16, "a warp has two parts");

__device__ __forceinline__ float Low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float High(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Expands the 16 bytes of a step that hold 4 rows: w[row][input].
template <DType kType>
__device__ __forceinline__ void Expand(uint4 piece, float (&w)[4][kType == DType::kF8E4M3 ? 4 : 2]) {
  if constexpr (kType != DType::kF8E4M3) {
    const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i][0] = kType == DType::kF16 ? F16ToFloat(words[i]) : Low(words[i]);
      w[i][1] = kType == DType::kF16 ? F16ToFloat(words[i] >> 16) : High(words[i]);
    }
  } else {
    // x: rows 0, 1 and y: rows 2, 3 for inputs 0, 1; z, w: the same rows for inputs 2, 3. Two bytes a row.
    const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t a = ScaleE4M3(MoveE4M3<0>(words[i])), b = ScaleE4M3(MoveE4M3<2>(words[i]));
      const int row = i % 2 * 2, input = i / 2 * 2;
      w[row][input] = Low(a);
      w[row][input + 1] = High(a);
      w[row + 1][input] = Low(b);
      w[row + 1][input + 1] = High(b);
    }
  }
}

// kRows: of the batch, at most.
template <DType kType, int kRows>
__global__ void __launch_bounds__(kThreads) HeadLinearKernel(HeadLinearArgs args, int64_t batch) {
  constexpr int kStepCols = kType == DType::kF8E4M3 ? 4 : 2;
  constexpr int kBlockSteps = static_cast<int>(kScaleBlock) / kStepCols;
  constexpr int kAtOnce = kRows == 8 ? 1 : kBlockSteps / kParts;  // pieces of a thread
  constexpr int kTurns = kBlockSteps / kParts / kAtOnce;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t group_bytes = args.cols / kStepCols * kStepBytes;
  for (int64_t at = int64_t{thread} * kLineBytes; at < group_bytes; at += kThreads * kLineBytes) {
    Prefetch(args.matrix.data + blockIdx.x * group_bytes + at);
  }
  BeginKernel();
  const int quad = thread % kQuads, part = thread / kQuads;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int rows = static_cast<int>(min(int64_t{kRows}, batch - first_row));
  const int64_t group_row = int64_t{blockIdx.x} * kRowGroup;
  const int64_t weight_row = group_row + 4 * quad;
  const int64_t head = weight_row / args.head_rows;
  const int64_t output = weight_row % args.head_rows - args.first_row;
  const bool wanted = head < args.heads && output >= 0 && output < args.out_rows;

  float totals[kRows][4] = {};
  [[maybe_unused]] uint32_t nan_signs[2] = {};  // of weight rows 0 and 1, 2 and 3: two codes each
  if (wanted) {
    const int64_t steps = args.cols / kStepCols;
    const uint8_t* const weights = args.matrix.data + (group_row / kRowGroup * steps) * kStepBytes + quad * 16;
    const uint16_t* const x = args.x + first_row * args.x_row_stride + head * args.x_head_stride;
    const int64_t blocks = (args.cols + kScaleBlock - 1) / kScaleBlock;
    for (int64_t block = 0; block < blocks; ++block) {
      float sums[kRows][4] = {};
#pragma unroll 1
      for (int turn = 0; turn < kTurns; ++turn) {
        const int64_t first_step = block * kBlockSteps + turn * kAtOnce * kParts + part;
        uint4 pieces[kAtOnce];
#pragma unroll
        for (int at = 0; at < kAtOnce; ++at) {
          const int64_t step = first_step + at * kParts;
          pieces[at] =
              step < steps ? *reinterpret_cast<const uint4*>(weights + step * kStepBytes) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int at = 0; at < kAtOnce; ++at) {
          const int64_t step = first_step + at * kParts;
          if (step >= steps) break;
          if constexpr (kType == DType::kF8E4M3) {
            nan_signs[0] |= AreNanE4M3(pieces[at].x) | AreNanE4M3(pieces[at].z);
            nan_signs[1] |= AreNanE4M3(pieces[at].y) | AreNanE4M3(pieces[at].w);
          }
          float w[4][kStepCols];
          Expand<kType>(pieces[at], w);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            if (kRows > 1 && r >= rows) continue;
            const uint32_t* const from =
                reinterpret_cast<const uint32_t*>(x + r * args.x_row_stride + step * kStepCols);
#pragma unroll
            for (int c = 0; c < kStepCols; c += 2) {
              const uint32_t pair = from[c / 2];
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                sums[r][i] = fmaf(w[i][c], Low(pair), sums[r][i]);
                sums[r][i] = fmaf(w[i][c + 1], High(pair), sums[r][i]);
              }
            }
          }
        }
      }
      const float scale =
          kType == DType::kF8E4M3 ? args.matrix.scales[weight_row / kScaleBlock * blocks + block] : 1.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[r][i] = fmaf(sums[r][i], scale, totals[r][i]);
      }
    }
  }
  if constexpr (kType == DType::kF8E4M3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((nan_signs[i / 2] >> (i % 2 * 16) & 0xffffu) == 0) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) totals[r][i] = __uint_as_float(0x7fc00000u);
    }
  }

  // [kWarps, kRows, kRowGroup]: sums over each warp's parts; then all warps are added in order.
  float* const shared = reinterpret_cast<float*>(DynamicShared());
  const int warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) totals[r][i] += __shfl_xor_sync(kAllLanes, totals[r][i], kQuads);
    if (lane >= kQuads) continue;
    *reinterpret_cast<float4*>(shared + (warp * kRows + r) * kRowGroup + 4 * quad) =
        make_float4(totals[r][0], totals[r][1], totals[r][2], totals[r][3]);
  }
  __syncthreads();
  for (int at = thread; at < kRows * kRowGroup; at += kThreads) {
    const int r = at / static_cast<int>(kRowGroup);
    const int64_t at_row = group_row + at % kRowGroup;
    const int64_t at_head = at_row / args.head_rows, at_output = at_row % args.head_rows - args.first_row;
    if (r >= rows || at_head >= args.heads || at_output < 0 || at_output >= args.out_rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared[w * kRows * kRowGroup + at];
    args.y[(first_row + r) * args.y_row_stride + at_head * args.y_head_stride + at_output] =
        static_cast<uint16_t>(PackBf16(sum, 0.0f));
  }
}

bool IsAligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <DType kType, int kRows>
LaunchResult LaunchRows(const HeadLinearArgs& args, int64_t rows, Stream stream) {
  constexpr int kSharedBytes = kWarps * kRows * static_cast<int>(kRowGroup * sizeof(float));
  const dim3 grid(static_cast<unsigned>(PaddedRows(args.heads * args.head_rows) / kRowGroup),
                  static_cast<unsigned>((rows + kRows - 1) / kRows));
  return Launch("head_linear", HeadLinearKernel<kType, kRows>, grid, dim3(kThreads), kSharedBytes, stream, args, rows);
}

template <DType kType>
LaunchResult LaunchType(const HeadLinearArgs& args, int64_t rows, Stream stream) {
  if (rows == 1) return LaunchRows<kType, 1>(args, rows, stream);
  return rows <= 4 ? LaunchRows<kType, 4>(args, rows, stream) : LaunchRows<kType, 8>(args, rows, stream);
}

}  // namespace

LaunchResult LaunchHeadLinear(const HeadLinearArgs& args, int64_t rows, Stream stream) {
  if (rows == 0) return {};
  if (args.heads < 1 || args.head_rows < 4 || args.cols < 4 || args.first_row < 0 || args.out_rows < 1 ||
      args.first_row + args.out_rows > args.head_rows || args.head_rows % 4 != 0 || args.first_row % 4 != 0 ||
      args.out_rows % 4 != 0 || args.cols % 4 != 0 || args.x_row_stride % 4 != 0 || args.x_head_stride % 4 != 0 ||
      !IsAligned(args.x, 8) || !IsAligned(args.matrix.data, 16)) {
    return {kInvalidArgument};
  }
  if (args.dtype == DType::kF8E4M3) return LaunchType<DType::kF8E4M3>(args, rows, stream);
  if (args.dtype == DType::kBF16) return LaunchType<DType::kBF16>(args, rows, stream);
  if (args.dtype == DType::kF16) return LaunchType<DType::kF16>(args, rows, stream);
  return {kInvalidArgument};
}

}  // namespace moestro::cuda
