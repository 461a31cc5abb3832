// The CPU kernels as one table of functions per instruction set. Every implementation obeys one numerics contract, so a
// token's bits never depend on batch size, chunk size, thread count or role:
//   - linear: for each output, the sum of each block of 128 inputs is formed in one order: a chain in input order (in
//     `amx`, the order of its tile products). Then it is scaled and added (fused multiply-add) to the output's total,
//     block by block. With BF16 weights, `amx` has one sum over all blocks.
//   - linear of a format of blocks: the same with sub-blocks, whose inputs share a scale, instead of 128 inputs. A
//     chain sums the codes, times inputs. Codes and scales are exact (block_format.h), so no weight is ever rounded.
//     Where the format has mins, -min * (the sum of the sub-block's inputs) is then added by one more fused
//     multiply-add. That sum too is formed in one order, in F32. In `amx`, tile products form both sums.
//   - linear of I8 weights: a chain of 128 codes times inputs, then the row's scale. No weight is rounded.
//   - linear_coded of I8 weights: inputs are rounded to 8 bits by token and sums are exact (linear_i8.h), with the same
//     bits everywhere.
//   - linear_coded of a format of blocks: a span of 128 inputs has a scale and 8-bit codes (coded_span.h). The sum of a
//     sub-block's products of codes is an exact integer. Then, each fma rounded once, in this order:
//       part = 0; for each sub-block of the span:
//         part = fma(sum, scale, part); with mins part = fma(-(sum of the inputs' codes), min, part)
//       total = fma(part, scale of the span's inputs, total)
//     A code of MXFP4 counts twice, and the last scale half. So all tables have the same bits.
//   - a row's result depends only on that row: not on the number of rows in the call, nor on [row_begin, row_end).
// Implementations of different ISAs may differ in the last bits (tests/common/kernels derives the tolerances). All
// functions are thread-safe and allocate nothing. Pointers may be unaligned unless stated otherwise.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/packed_matrix.h"

namespace moestro {

struct CpuKernels {
  std::string_view isa;  // "ref", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"

  // y[t * y_stride + n - row_begin] = sum_k W[n, k] * x[t, k] for rows n in [row_begin, row_end) of W, t in [0,
  // tokens). x: BF16 [tokens, x_stride], of which W.cols elements per row are read. y: F32 [tokens, y_stride], of which
  // only the first row_end - row_begin columns are written. row_begin is a multiple of 64; row_end a multiple of 64 or
  // W.rows. W.dtype is any but F32; of a format of blocks, W.cols is a multiple of row_block.
  void (*linear)(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end);

  // Adds the same sum to y: one more rounding, or (`amx`, BF16 weights) the sum starts from y.
  void (*linear_add)(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                     int64_t y_stride, int64_t row_begin, int64_t row_end);

  // Writes `cols` BF16 inputs of a row as a coded row of at most CodedRowBytes(coding, cols) bytes (input_coding.h);
  // out is aligned to kCodedRowAlignment. A row with an infinity or NaN has outputs that are not finite.
  void (*encode_inputs)(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out);

  // y = W x, or y += W x if `add`, for `tokens` coded rows, x_stride bytes apart (a multiple of kCodedRowAlignment), of
  // CodingOf(w.dtype). Otherwise as `linear`. All tables have the same bits.
  void (*linear_coded)(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                       int64_t y_stride, int64_t row_begin, int64_t row_end, bool add);

  // The setting of this process. No function of the table takes notice of it: their callers choose between `linear`
  // and `linear_coded` by it (common/model/linear.h). AvailableKernels have the default; a role copies one and sets it.
  Int8Activations int8_activations = Int8Activations::kPublished;
  // The same of inputs of FP8 weights: whether they are rounded to FP8 (fp8_inputs.h), or stay BF16.
  bool fp8_activations = false;

  // out[e] = sum_h w[e, h] * x[h] in F32 for e in [0, experts): w is F32 [experts, hidden] row-major.
  void (*router_logits)(const float* w, int64_t experts, int64_t hidden, const float* x, float* out);

  // out = x / sqrt(mean(x^2) + eps) * weight, statistics in F32 (or wider). Either output may be null.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16);

  // The same of x - mean(x).
  void (*layer_norm)(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16);

  // out = bf16(silu(gate) * up)
  void (*silu_mul)(const float* gate, const float* up, int64_t n, uint16_t* out);

  // out = bf16((u + 1) * g * sigmoid(alpha * g)) with g = min(gate, limit), u = up within [-limit, limit]
  void (*clamped_swiglu)(const float* gate, const float* up, int64_t n, float limit, float alpha, uint16_t* out);

  // out = bf16(x), nearest even
  void (*to_bf16)(const float* x, int64_t n, uint16_t* out);

  // y += a * x (fused multiply-add per element)
  void (*axpy)(float a, const float* x, int64_t n, float* y);

  // y = a * x + b * y (b * y rounded, then a fused multiply-add, per element)
  void (*axpby)(float a, const float* x, float b, int64_t n, float* y);

  // Attention takes steps of one or several KV blocks of kAttentionBlock tokens. Blocks are BF16 matrices in the layout
  // of packed_matrix.h, in the cache or packed from its rows, and shared by many queries (heads that share them, rows
  // that see them). Scores are linear(keys, queries); value sums are linear(values, weights). The block's vectors are
  // at kv + t * stride, t in [0, tokens), BF16, dim elements each. `keys` becomes the packed matrix [kAttentionBlock
  // rows, dim columns]; missing tokens are zero rows.
  void (*pack_keys)(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, uint8_t* keys);
  // Writes the block's vectors to columns first .. first + kAttentionBlock - 1 of `values`, a step's packed matrix [dim
  // rows, `columns` columns]. `first` is a multiple of kAttentionBlock.
  void (*pack_values)(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, int64_t first, int64_t columns,
                      uint8_t* values);
  // One query's step of the online softmax: s = scale * scores[t] for t in [0, tokens), tokens <= columns, a multiple
  // of kAttentionBlock. weights[t] = bf16(exp(s - new maximum)), 0 for t in [tokens, columns). state.max_score becomes
  // the new maximum. The function returns the factor exp(old - new maximum), by which the caller must multiply its sums
  // so far. state.sum is multiplied by the factor, and the rounded weights are added to it. More columns change no
  // bits. A score of -inf has weight 0; of the scores, or the maximum so far, one must be finite.
  float (*softmax_step)(const float* scores, int64_t tokens, int64_t columns, float scale, SoftmaxState* state,
                        uint16_t* weights);
  // All of the above in a step of one block, with the same bits, for one token's queries and tokens [first_token,
  // tokens) of a packed block. REQUIRES: group <= kMaxTokenGroup; key_dim and value_dim are multiples of kTokenDims.
  // Null where the steps are as fast for so few queries.
  void (*attend_token)(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) = nullptr;
};

// Compiled-in kernel tables that this CPU can run, slowest first. CPUID and XCR0 must both allow them, and the
// operating system must let the process use tiles. Never empty: "ref" is always there.
std::vector<const CpuKernels*> AvailableKernels();

// Names of all compiled-in tables, slowest first, whether or not this CPU can run them.
std::vector<std::string_view> CompiledKernels();

}  // namespace moestro
