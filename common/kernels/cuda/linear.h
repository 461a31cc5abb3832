// Products with the segment's packed weights (common/tensor/packed_matrix.h) on tensor cores. Codes become BF16 in
// registers, exactly; F16 weights become a sum of two BF16 numbers. Products are summed in F32 over blocks of 128
// inputs, in formats of blocks over sub-blocks of up to 32. Each sum is scaled and added to the output's total. A row
// of x gives the same bits in every tile.
//
// All pointers are device pointers. Requirements, else kInvalidArgument: weights and x aligned to 16 bytes, x_stride a
// multiple of 8, in formats of blocks cols a multiple of their row_block. Only the first `cols` elements of a row of x
// are read.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/stream.h"
#include "common/tensor/dtype.h"

namespace moestro::cuda {

struct MatrixPointers {
  const uint8_t* data = nullptr;  // PackedBytes(dtype, rows, cols) bytes
  const float* scales = nullptr;  // [ceil(rows / 128), ceil(cols / 128)] for FP8, [rows padded to 64] for I8, else null
  const float* bias = nullptr;    // [rows], added to W x with one more rounding; null: none
};

enum class LinearOutput {
  kF32,     // y = W x
  kAddF32,  // y = y + W x, one more rounding
  kBf16,    // y = bf16(W x), nearest even
};

// Consecutive rows of a batch for the matrix of one group.
struct TokenTile {
  int32_t group = 0;
  int32_t begin = 0;
  int32_t count = 0;  // at most the tile size of the launch
};

// Tokens per tile. The small size is for few tokens per group: it reads weights as fast and wastes no products.
inline constexpr int kSmallTile = 16;
inline constexpr int kLargeTile = 128;

// Shared by both forms below. Writes y[r * y_stride + n] for n in [0, rows), and nothing else.
struct LinearShape {
  DType dtype = DType::kF8E4M3;  // kF8E4M3, kBF16, kF16, kI8 or a format of blocks
  int64_t rows = 0;              // outputs
  int64_t cols = 0;              // inputs
  const uint16_t* x = nullptr;   // BF16 [.., x_stride]
  int64_t x_stride = 0;
  // In place of x, for FP8 weights: inputs in FP8 codes, [.., Fp8RowBytes(cols)] (fp8_inputs.h), aligned to 16 bytes.
  // Needs a GPU of compute capability 8.9 or later.
  const uint8_t* codes = nullptr;
  void* y = nullptr;  // F32 or BF16 [.., y_stride]
  int64_t y_stride = 0;
  LinearOutput output = LinearOutput::kF32;
  bool int8_inputs = false;  // I8 weights: x is coded rows (int8_inputs.h), and sums are exact integers
  // Of gate and up, ModelSpec's: 0: silu.
  float swiglu_limit = 0;
  float swiglu_alpha = 0;
};

// Whether the current device multiplies by groups of warps (wgmma, compute capability 9.0), and the build has code for
// it (sm_90a). Then FP8 weights take these, with inputs of either kind, and so does attention for prompts. A row has
// the same bits in every tile, as elsewhere. False with MOESTRO_WGMMA=off in the environment: the products of warps,
// which every other GPU takes, are slower there, and those of FP8 inputs are not taken by default.
bool HasWgmma();

// y[r] = W x[r] for r in [0, tokens).
LaunchResult LaunchLinear(const LinearShape& shape, const MatrixPointers& matrix, int64_t tokens, Stream stream);

// Of outputs that are heads of head_dim elements, at the tokens' positions: elements [first, first + dims) of each head
// in pairs of neighbours, as RopePairs::kAdjacent.
struct HeadRotation {
  const float* cosine = nullptr;  // [tokens, dims / 2]; null: outputs are not rotated
  const float* sine = nullptr;    // [tokens, dims / 2]
  int64_t head_dim = 0;
  int64_t first = 0;
  int64_t dims = 0;
};

// Whether LaunchRotatedLinear has kernels: of few tokens, with BF16 outputs of weights that are no blocks, and all
// three numbers multiples of 4.
bool RotatesOutputs(const LinearShape& shape, const HeadRotation& rotation, int64_t tokens);

// LaunchLinear whose outputs are rotated, with the bits of a product in F32 and LaunchRotateHeads. REQUIRES:
// RotatesOutputs.
LaunchResult LaunchRotatedLinear(const LinearShape& shape, const HeadRotation& rotation, const MatrixPointers& matrix,
                                 int64_t tokens, Stream stream);

// Two of these for the same tokens, with the same bits. Few tokens take one launch, because small matrices alone do not
// fill the GPU.
LaunchResult LaunchLinearPair(const LinearShape& first, const MatrixPointers& first_matrix, const LinearShape& second,
                              const MatrixPointers& second_matrix, int64_t tokens, Stream stream);

// The matrices of one launch. They are launch arguments: streamed weights have another address every time, and a table
// in device memory would need one more copy, which would delay theirs.
inline constexpr int kMaxMatrices = 16;
struct MatrixList {
  MatrixPointers of[kMaxMatrices];
};

// y[r] = W_group x[row_of[r]] for all rows r of the tiles. A group without rows has no tile and is not read.
struct LinearGroups {
  MatrixList matrices;  // groups first_group, first_group + 1, ...
  int32_t first_group = 0;
  const int32_t* row_of = nullptr;  // for each row of y, its row of x; null: the same row
  const TokenTile* tiles = nullptr;
  // The groups' tiles: *first_tile up to *end_tile, known only on the device.
  const int32_t* first_tile = nullptr;
  const int32_t* end_tile = nullptr;
  int64_t max_tiles = 0;         // upper bound
  int tile_tokens = kLargeTile;  // tile size of the tiles: kSmallTile or kLargeTile
};
LaunchResult LaunchGroupedLinear(const LinearShape& shape, const LinearGroups& groups, Stream stream);

// The first half of a gated MLP in one launch: y[r] = bf16(silu(gate x[r]) * up x[r]), with products in F32. Or
// with the activation of swiglu_limit. The bits are those of two LaunchLinear and a LaunchSiluMul. Both matrices have
// the shape's form; y is BF16; `output` is ignored.
LaunchResult LaunchGateUp(const LinearShape& shape, const MatrixPointers& gate, const MatrixPointers& up,
                          int64_t tokens, Stream stream);
// groups.matrices: the gates.
LaunchResult LaunchGroupedGateUp(const LinearShape& shape, const LinearGroups& groups, const MatrixList& up,
                                 Stream stream);

// logits[t, e] = sum over h of w[e, h] x[t, h], all F32 and row-major. Plain arithmetic in a fixed order
// (router_logits.cu): a row has the same bits among any number of others. Any alignment.
LaunchResult LaunchRouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, int64_t tokens,
                                float* logits, Stream stream);

}  // namespace moestro::cuda
