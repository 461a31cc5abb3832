// Layers of DeepSeek-V3's geometry with random weights in host memory, for timings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/checkpoint/config.h"
#include "common/model/binding.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"
#include "tests/cuda/gpu/shared_mapping.h"

namespace moestro {

// Experts of a layer with separate memory, 2.8 GB: far more than caches hold. The others share it.
inline constexpr int64_t kDistinctExperts = 64;
inline constexpr int64_t kHostBytes = int64_t{7} << 29;  // 3.5 GiB: these experts and a layer's other weights

// MoE layers; the head is small, because it is not measured.
inline weights::ModelSpec DeepSeekV3Layers(int64_t layers) {
  weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  spec.num_layers = layers;
  spec.first_dense_layers = 0;
  spec.vocab_size = spec.token_count = 1024;
  return spec;
}

// Random weights in a segment's layout, in shared memory mapped read-only, as in the roles; all layers share the same
// memory. Magnitudes are such that everything stays finite and tokens choose different experts, since the choice
// determines what is read.
class HostWeights {
 public:
  explicit HostWeights(const weights::ModelSpec& spec) : memory_(kHostBytes) {
    std::mt19937 random(1);
    for (uint8_t& code : codes_) code = static_cast<uint8_t>(random() % 0x7f | (random() & 0x80));  // no NaN
    std::normal_distribution<float> normal(0, 1);
    for (uint16_t& number : embeddings_) number = ToBf16(normal(random));
    for (float& number : norms_) number = 1 + 0.1f * normal(random);
    for (float& number : router_) number = 0.02f * normal(random);  // logits of about 1.7
    // Codes are about 100 (root mean square), so weights are about 0.02.
    for (float& number : scales_) number = 2e-4f * (1 + 0.1f * normal(random));

    const int64_t hidden = spec.hidden_size, heads = spec.num_heads;
    model::LayerWeights layer;
    model::AttentionWeights& a = layer.attention;
    a.input_norm = Floats(norms_, hidden);
    a.q_a = Linear(spec.q_lora_rank, hidden);
    a.q_a_norm = Floats(norms_, spec.q_lora_rank);
    a.q_b = Linear(heads * spec.qk_head_dim(), spec.q_lora_rank);
    a.kv_a = Linear(spec.kv_dim(), hidden);
    a.kv_a_norm = Floats(norms_, spec.kv_lora_rank);
    a.kv_b = Linear(heads * (spec.qk_nope_head_dim + spec.v_head_dim), spec.kv_lora_rank);
    a.key_transposed = Linear(heads * spec.kv_lora_rank, spec.qk_nope_head_dim);
    a.o = Linear(hidden, heads * spec.v_head_dim);
    model::FeedForwardWeights& f = layer.feed_forward;
    f.norm = Floats(norms_, hidden);
    f.router = Floats(router_, spec.num_experts * hidden);
    f.bias = Floats(router_, spec.num_experts);
    f.dense = Mlp(hidden, spec.shared_intermediate_size());
    for (int64_t e = 0; e < kDistinctExperts; ++e) f.experts.push_back(Mlp(hidden, spec.moe_intermediate_size));
    for (int64_t e = kDistinctExperts; e < spec.num_experts; ++e) f.experts.push_back(f.experts[e % kDistinctExperts]);
    weights.layers.assign(static_cast<size_t>(spec.num_layers), layer);
    weights.final_norm = Floats(norms_, hidden);
    weights.head = Linear(spec.vocab_size, hidden);
    weights.embedding = {DType::kBF16, Take(embeddings_, spec.vocab_size * hidden * 2)};
    memory_.Protect();
  }

  const uint8_t* data() const { return memory_.data(); }
  int64_t bytes() const { return next_; }
  model::ModelWeights weights;

 private:
  // `bytes` of memory, filled with repetitions of the pattern.
  template <typename T>
  const uint8_t* Take(const std::vector<T>& pattern, int64_t bytes) {
    uint8_t* const data = memory_.data() + next_;
    const int64_t whole = std::ssize(pattern) * static_cast<int64_t>(sizeof(T));
    for (int64_t at = 0; at < bytes; at += whole) {
      std::memcpy(data + at, pattern.data(), static_cast<size_t>(std::min(whole, bytes - at)));
    }
    next_ = RoundUp(next_ + bytes, weights::kTensorAlignment);
    return data;
  }
  const float* Floats(const std::vector<float>& pattern, int64_t count) {
    return reinterpret_cast<const float*>(Take(pattern, count * 4));
  }
  PackedMatrix Linear(int64_t rows, int64_t cols) {
    PackedMatrix matrix{.dtype = DType::kF8E4M3, .rows = rows, .cols = cols};
    matrix.data = Take(codes_, PackedBytes(matrix.dtype, rows, cols));
    matrix.scales = reinterpret_cast<const float*>(Take(scales_, weights::TensorScaleBytes(matrix.dtype, rows, cols)));
    return matrix;
  }
  model::MlpWeights Mlp(int64_t hidden, int64_t width) {
    return {Linear(width, hidden), Linear(width, hidden), Linear(hidden, width)};
  }

  SharedMapping memory_;
  int64_t next_ = 0;
  std::vector<uint8_t> codes_ = std::vector<uint8_t>((1 << 20) + 64);
  std::vector<uint16_t> embeddings_ = std::vector<uint16_t>((1 << 19) + 32);
  std::vector<float> norms_ = std::vector<float>((1 << 13) + 16);
  std::vector<float> router_ = std::vector<float>((1 << 18) + 16);
  std::vector<float> scales_ = std::vector<float>((1 << 16) + 16);
};

}  // namespace moestro
