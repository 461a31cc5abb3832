// What a model has to compute and to read, from its shapes: the one count that simulated devices charge and that
// benchmarks divide by. Elements, operations and bytes are whole numbers; as double they are exact below 2^53.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Of weights that a row is multiplied with. They are read once, however many rows there are.
struct WeightCount {
  double elements = 0;  // a multiplication and an addition of each row
  double bytes = 0;     // scales are not counted
};

WeightCount CountWeights(const PackedMatrix& matrix);
WeightCount CountWeights(const MlpWeights& mlp);
// All projections. MLA's kv_b is counted once for both forms: they expand a token's latent for all heads (un-absorbed),
// or queries and values (absorbed), with equally many multiplications.
WeightCount CountWeights(const AttentionWeights& weights);

struct LayerCount {
  WeightCount attention;
  WeightCount router;  // F32; 0 in a dense layer
  WeightCount always;  // dense MLP or shared expert
  WeightCount expert;  // one routed expert; 0 in a dense layer
};

struct ModelCount {
  std::vector<LayerCount> layers;
  WeightCount head;
};

// Linear layers have the type `linear`, the head is BF16.
ModelCount CountModel(const ModelSpec& spec, DType linear);

// Pairs of a row and a position that it sees, of `rows` rows after `before` positions.
double VisiblePairs(double before, double rows);
// Of scores and sums of values, of one layer.
double AttentionFlops(const ModelSpec& spec, MlaForm form, double visible_pairs);
// Of the cached keys and values of so many positions, in one layer.
double KvBytes(const ModelSpec& spec, double positions);

// Multiplications and additions of a prompt of `tokens` tokens from position 0: of all linear layers, the router, the
// scores and value sums of causal attention, and the head for one row.
double PrefillOperations(const ModelSpec& spec, MlaForm form, int64_t tokens);

// Bytes of weights and KV that one token of each of `sequences` sequences at position `position` reads, in the absorbed
// form, with FP8 linear layers: every weight once, `experts` different routed experts over all layers (all are equally
// large), and the KV of every sequence.
double DecodeBytes(const ModelSpec& spec, int64_t position, int64_t sequences, int64_t experts);

}  // namespace moestro
