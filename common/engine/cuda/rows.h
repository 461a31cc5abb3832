// Rows that a GPU takes through a layer together, and what all parts of a layer launch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/engine/cuda/activations.h"
#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"
#include "common/model/binding.h"

namespace moestro::engine {

// Memory as the bytes that streams copy.
inline uint8_t* BytesOf(void* data) { return static_cast<uint8_t*>(data); }
inline const uint8_t* BytesOf(const void* data) { return static_cast<const uint8_t*>(data); }

// Consecutive rows at consecutive positions.
struct CudaStripe {
  IndexRange rows;
  int64_t position = 0;  // of the first

  int64_t end() const { return position + rows.size(); }
};

// Rows that a linear layer multiplies: BF16, or coded for I8 weights.
struct CudaInputRows {
  const uint16_t* x = nullptr;
  int64_t stride = 0;
  bool coded = false;
};

// Rows of a prompt in one layer, or of a step of decode. Pointers are device memory.
struct CudaRows {
  const weights::ModelSpec& spec;
  const CudaActivations& activations;
  int64_t rows = 0;
  float* residual = nullptr;      // [rows, hidden_size]
  const float* cosine = nullptr;  // [rows, rotated_dims() / 2]
  const float* sine = nullptr;    // [rows, rotated_dims() / 2]

  cuda::KvPagesView cache;  // of the layer: where the rows' keys and values go
  // Rows of one sequence: all rows; one device has one stripe. The cache begins with the token first_token, which
  // begins a KV block.
  std::array<CudaStripe, 2> stripes;
  int64_t first_token = 0;
  // Rows of several sequences, as StoreLatentArgs has them; null: of one. They are one tile and one stripe.
  const int32_t* positions = nullptr;
  const int32_t* first_page = nullptr;
  uint16_t* entries = nullptr;  // [rows, kv_dim]: what goes to the cache, once more
  bool is_normed = false;       // x is the norm that attention begins with

  int64_t tiles() const { return CeilDiv(rows, activations.tile_rows); }
  IndexRange Tile(int64_t index) const {
    return {index * activations.tile_rows, std::min(rows, (index + 1) * activations.tile_rows)};
  }
  int64_t x_stride() const { return CudaStride(spec.hidden_size); }
  const uint16_t* X(IndexRange of) const { return activations.x + of.begin * x_stride(); }
  bool coded() const { return activations.codes != nullptr; }
  uint16_t* Codes(IndexRange of) const { return activations.codes + of.begin * cuda::Int8Stride(spec.hidden_size); }
  // x as `w` takes it.
  CudaInputRows InputsOf(const PackedMatrix& w, IndexRange of) const {
    if (!coded() || w.dtype != DType::kI8) return {X(of), x_stride()};
    return {Codes(of), cuda::Int8Stride(spec.hidden_size), /*coded=*/true};
  }
  cuda::RopeAngles Angles(IndexRange of) const {
    const int64_t pairs = spec.rotated_dims() / 2;
    return {cosine + of.begin * pairs, sine + of.begin * pairs, 2 * pairs,
            spec.attention_kind() == weights::AttentionKind::kGroupedQueries ? cuda::RopePairs::kHalves
                                                                             : cuda::RopePairs::kAdjacent};
  }
};

// The cache of a layer as tokens that follow each other, BF16 [.., kv_dim].
inline cuda::KvPagesView ContiguousCache(const weights::ModelSpec& spec, uint16_t* tokens) {
  return {.pages = BytesOf(tokens),
          .list = nullptr,
          .page_bytes = cuda::kKvBlock * spec.kv_dim() * static_cast<int64_t>(sizeof(uint16_t)),
          .layer_offset = 0,
          .page_tokens = cuda::kKvBlock,
          .kv_dim = spec.kv_dim()};
}

using cuda::LaunchStatus;
using cuda::PointersOf;
using cuda::ShapeOf;

inline cuda::LinearShape ShapeOf(const PackedMatrix& w, const CudaInputRows& in, void* y, int64_t y_stride,
                                 cuda::LinearOutput output = cuda::LinearOutput::kF32) {
  cuda::LinearShape shape = ShapeOf(w, in.x, in.stride, y, y_stride, output);
  shape.int8_inputs = in.coded;
  return shape;
}

// BF16 rows as `w` takes them: those of I8 weights are coded in place, if inputs are coded.
inline absl::StatusOr<CudaInputRows> CodeInPlace(bool coded, const PackedMatrix& w, uint16_t* x, int64_t stride,
                                                 int64_t rows, cuda::Stream stream) {
  const CudaInputRows in{x, stride, coded && w.dtype == DType::kI8};
  if (!in.coded) return in;
  const absl::Status launched = LaunchStatus(cuda::LaunchEncodeInt8(
      {.x = x, .x_stride = stride, .cols = w.cols, .out = x, .out_stride = stride, .rows = rows}, stream));
  if (!launched.ok()) return launched;
  return in;
}

// Whether a prompt's inputs are rounded to FP8, and the weights are FP8.
inline bool InFp8(const CudaActivations& activations, const cuda::LinearShape& shape) {
  return activations.fp8_codes != nullptr && shape.dtype == DType::kF8E4M3;
}

// Rounds the shape's inputs of `rows` tokens to FP8, where they are. The launch that follows takes them.
inline absl::Status EncodeFp8(const CudaActivations& activations, int64_t rows, cuda::LinearShape* shape,
                              cuda::Stream stream) {
  if (!InFp8(activations, *shape)) return absl::OkStatus();
  shape->codes = activations.fp8_codes;
  return LaunchStatus(cuda::LaunchEncodeFp8(
      {.x = shape->x, .x_stride = shape->x_stride, .rows = rows, .cols = shape->cols, .out = activations.fp8_codes},
      stream));
}

// y = W x of `count` tokens, as the shape says.
inline absl::Status Multiply(const CudaRows& rows, cuda::LinearShape shape, const cuda::MatrixPointers& matrix,
                             int64_t count, cuda::Stream stream) {
  MOE_RETURN_IF_ERROR(EncodeFp8(rows.activations, count, &shape, stream));
  return LaunchStatus(cuda::LaunchLinear(shape, matrix, count, stream));
}

// residual = rows of the table, BF16 or F32 [.., hidden_size]: those of the tokens, or null: the first.
template <typename T>
absl::Status Embed(const CudaRows& rows, const T* table, const int32_t* tokens, cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchEmbed(table, tokens, rows.rows, rows.spec.hidden_size, rows.residual, stream));
}

// x = norm(residual) of some rows, and its codes if inputs are coded; and in F32 to `out` if that is not null.
inline cuda::RmsNormArgs NormOf(const CudaRows& rows, const float* weight, IndexRange of, float* out) {
  const int64_t hidden = rows.spec.hidden_size;
  return {.x = rows.residual + of.begin * hidden,
          .x_stride = hidden,
          .weight = weight,
          .rows = of.size(),
          .n = hidden,
          .eps = static_cast<float>(rows.spec.rms_norm_eps),
          .out = out,
          .out_bf16 = rows.activations.x + of.begin * rows.x_stride(),
          .out_bf16_stride = rows.x_stride(),
          .subtract_mean = rows.spec.layer_norms != 0,
          .out_int8 = rows.coded() ? rows.Codes(of) : nullptr,
          .out_int8_stride = cuda::Int8Stride(hidden)};
}

inline absl::Status NormResidual(const CudaRows& rows, const float* weight, IndexRange of, float* out,
                                 cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchRmsNorm(NormOf(rows, weight, of, out), stream));
}

}  // namespace moestro::engine
