// A model's operations and bytes, computed from its shapes. Simulated devices charge this count and benchmarks divide
// by it. Elements, operations and bytes are whole numbers; as double they are exact below 2^53.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// Weights that multiply a row. They are read once for any number of rows.
struct WeightCount {
  double elements = 0;  // one multiplication and one addition per row
  double bytes = 0;     // of FP8, without scales
};

WeightCount CountWeights(const PackedMatrix& matrix);
WeightCount CountWeights(const model::MlpWeights& mlp);
// All projections. MLA's kv_b counts once in both forms, which need the same number of multiplications: it expands a
// token's latent for all heads (un-absorbed), or queries and values (absorbed).
WeightCount CountWeights(const model::AttentionWeights& weights);

struct LayerCount {
  WeightCount attention;
  WeightCount router;  // F32, with the shared expert's gate; 0 in a dense layer
  WeightCount dense;   // dense MLP or shared expert
  WeightCount expert;  // one routed expert; 0 in a dense layer
};

struct ModelCount {
  std::vector<LayerCount> layers;
  WeightCount head;

  double expert_bytes() const;  // of one routed expert, on average over the layers; 0 if there are none
};

// `weights`: only its shapes and types are read.
ModelCount CountModel(const weights::ModelSpec& spec, const model::ModelWeights& weights);
// Linear layers have the type `linear`, the head is BF16.
ModelCount CountModel(const weights::ModelSpec& spec, DType linear);

// Pairs of a row and a position that the row sees, for `rows` rows after `before` positions. window: 0, or the last so
// many positions that a row sees.
double VisiblePairs(double before, double rows, int64_t window = 0);
// Operations of scores and value sums in one layer.
double AttentionFlops(const weights::ModelSpec& spec, model::MlaForm form, double visible_pairs);
// Bytes of the cached keys and values of `positions` positions in one layer.
double KvBytes(const weights::ModelSpec& spec, double positions);

// Multiplications and additions of a prompt of `tokens` tokens from position 0: all linear layers, the router, scores
// and value sums of causal attention, and the head for one row.
double PrefillOperations(const weights::ModelSpec& spec, model::MlaForm form, int64_t tokens);

// Bytes of all weights that such a prompt uses, each read once. Every token may be sent to other experts.
double PrefillBytes(const weights::ModelSpec& spec, const ModelCount& model, int64_t tokens);

// Bytes of weights and KV for one token of each of `sequences` sequences at position `position`, in the absorbed form.
// Counts every weight once, `experts` different routed experts over all layers (all of equal size), and the KV of every
// sequence.
double DecodeBytes(const weights::ModelSpec& spec, const ModelCount& model, int64_t position, int64_t sequences,
                   int64_t experts);
// Linear layers have the type `linear`, the head is BF16.
double DecodeBytes(const weights::ModelSpec& spec, int64_t position, int64_t sequences, int64_t experts,
                   DType linear = DType::kF8E4M3);

}  // namespace moestro::roofline
