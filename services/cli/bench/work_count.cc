#include "services/cli/bench/work_count.h"

#include "common/model/attention.h"

namespace moestro::bench {
namespace {

// Weights that a token meets in the attention of one layer outside of kv_b.
int64_t ProjectionWeights(const ModelSpec& s) {
  const int64_t queries = s.num_heads * s.qk_head_dim();
  const int64_t q = s.q_lora_rank > 0 ? s.q_lora_rank * (s.hidden_size + queries) : s.hidden_size * queries;
  return q + s.kv_dim() * s.hidden_size + s.hidden_size * s.num_heads * s.v_head_dim;
}

// kv_b, or its transposed key half and its value half: equally many.
int64_t LatentWeights(const ModelSpec& s) { return s.num_heads * (s.qk_nope_head_dim + s.v_head_dim) * s.kv_lora_rank; }

int64_t ExpertWeights(const ModelSpec& s) { return 3 * s.hidden_size * s.moe_intermediate_size; }

// Of the dense MLP or the shared expert.
int64_t EveryTokensMlpWeights(const ModelSpec& s, int64_t layer) {
  return 3 * s.hidden_size * (s.IsMoeLayer(layer) ? s.shared_intermediate_size() : s.intermediate_size);
}

// Of the experts that a token takes and the shared one, or of the dense MLP.
int64_t MlpWeights(const ModelSpec& s, int64_t layer) {
  return EveryTokensMlpWeights(s, layer) + (s.IsMoeLayer(layer) ? s.experts_per_token * ExpertWeights(s) : 0);
}

int64_t RouterWeights(const ModelSpec& s, int64_t layer) {
  return s.IsMoeLayer(layer) ? s.num_experts * s.hidden_size : 0;
}

}  // namespace

double PrefillOperations(const ModelSpec& spec, MlaForm form, int64_t tokens) {
  const int64_t pair = PairProducts(spec, form);
  const int64_t pairs = tokens * (tokens + 1) / 2;
  double multiplications = static_cast<double>(spec.vocab_size * spec.hidden_size);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const int64_t weights =
        ProjectionWeights(spec) + LatentWeights(spec) + MlpWeights(spec, layer) + RouterWeights(spec, layer);
    multiplications += static_cast<double>(tokens * weights + pairs * spec.num_heads * pair);
  }
  return 2 * multiplications;
}

double DecodeBytes(const ModelSpec& spec, int64_t position, int64_t sequences, int64_t experts) {
  int64_t bytes = 2 * spec.vocab_size * spec.hidden_size + experts * ExpertWeights(spec);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    bytes += ProjectionWeights(spec) + LatentWeights(spec) + EveryTokensMlpWeights(spec, layer);  // a byte each
    bytes += 4 * RouterWeights(spec, layer);
    bytes += 2 * spec.kv_dim() * (position + 1) * sequences;
  }
  return static_cast<double>(bytes);
}

}  // namespace moestro::bench
