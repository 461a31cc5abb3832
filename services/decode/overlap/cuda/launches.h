// A lane's layer on the device, launch by launch.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/call.h"
#include "common/model/binding.h"
#include "services/decode/overlap/cuda/activations.h"
#include "services/decode/overlap/cuda/step_rows.h"

namespace moestro {

// What the launches work with. Everything is on the device.
struct DecodePass {
  const ModelSpec& spec;
  const DecodeActivations& activations;
  const StepArrays& arrays;
  cuda::KvPagesView pages;    // of the layer
  uint16_t* entries;          // of the layer, [rows, kv_dim]
  float* residual = nullptr;  // [rows, hidden]
  int64_t rows = 0;
};

// residual = the rows' embeddings
absl::Status EmbedTokens(const DecodePass& pass, cuda::Stream stream);

// residual += attention(norm(residual)), absorbed if it is MLA; the rows' cached vectors go to the pages and to
// `entries`.
absl::Status AddAttention(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream);

// residual += mlp(norm(residual))
absl::Status AddDense(const DecodePass& pass, const FeedForwardWeights& w, cuda::Stream stream);

// x = norm(residual), and the choices of experts. *has_nan becomes 1 if scores are NaN; ids are valid all the same.
absl::Status RouteToExperts(const DecodePass& pass, const FeedForwardWeights& w, int32_t* has_nan, cuda::Stream stream);

// shared = mlp(x); the shared expert may have no rows.
absl::Status RunSharedExpert(const DecodePass& pass, const MlpWeights& w, cuda::Stream stream);

// residual += sums + shared
absl::Status AddExperts(const DecodePass& pass, const MlpWeights& shared, cuda::Stream stream);

}  // namespace moestro
