#include "common/roofline/work_count.h"

#include "common/model/attention/attention.h"
#include "common/roofline/shapes.h"

namespace moestro::roofline {
namespace {

WeightCount& operator+=(WeightCount& sum, const WeightCount& other) {
  sum.elements += other.elements;
  sum.bytes += other.bytes;
  return sum;
}

}  // namespace

WeightCount CountWeights(const PackedMatrix& matrix) {
  const double elements = static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  return {elements, static_cast<double>(matrix.rows) * static_cast<double>(RowBytes(matrix.dtype, matrix.cols))};
}

WeightCount CountWeights(const model::MlpWeights& mlp) {
  WeightCount sum;
  for (const PackedMatrix* matrix : {&mlp.gate, &mlp.up, &mlp.down}) sum += CountWeights(*matrix);
  return sum;
}

WeightCount CountWeights(const model::AttentionWeights& w) {
  WeightCount sum;
  for (const PackedMatrix* matrix : {&w.q_a, &w.q_b, &w.kv_a, &w.kv_b, &w.k, &w.v, &w.o}) sum += CountWeights(*matrix);
  return sum;
}

double ModelCount::expert_bytes() const {
  double bytes = 0, with_experts = 0;
  for (const LayerCount& layer : layers) {
    bytes += layer.expert.bytes;
    with_experts += layer.expert.bytes > 0 ? 1 : 0;
  }
  return with_experts == 0 ? 0 : bytes / with_experts;
}

ModelCount CountModel(const weights::ModelSpec& spec, const model::ModelWeights& weights) {
  ModelCount model{.layers = {}, .head = CountWeights(weights.head)};
  for (const model::LayerWeights& layer : weights.layers) {
    const model::FeedForwardWeights& mlps = layer.feed_forward;
    LayerCount& count = model.layers.emplace_back();
    count.attention = CountWeights(layer.attention);
    count.dense = CountWeights(mlps.dense);
    if (mlps.experts.empty()) continue;
    const auto router = static_cast<double>((spec.num_experts + spec.shared_expert_gate) * spec.hidden_size);
    count.router = {router, router * sizeof(float)};
    count.expert = CountWeights(mlps.experts.front());
  }
  return model;
}

ModelCount CountModel(const weights::ModelSpec& spec, DType linear) {
  return CountModel(spec, ShapesOnly(spec, linear));
}

double VisiblePairs(double before, double rows, int64_t window) {
  const double all = rows * before + rows * (rows + 1) / 2;
  if (window == 0) return all;
  const auto most = static_cast<double>(window);
  const double partly = std::clamp(most - before, 0.0, rows);  // rows that see all before them
  return partly * before + partly * (partly + 1) / 2 + (rows - partly) * most;
}

double AttentionFlops(const weights::ModelSpec& spec, model::MlaForm form, double visible_pairs) {
  return 2 * static_cast<double>(spec.num_heads * model::PairProducts(spec, form)) * visible_pairs;
}

double KvBytes(const weights::ModelSpec& spec, double positions) {
  return 2 * static_cast<double>(spec.kv_dim()) * positions;
}

double PrefillOperations(const weights::ModelSpec& spec, model::MlaForm form, int64_t tokens) {
  const auto rows = static_cast<double>(tokens);
  const ModelCount model = CountModel(spec, DType::kF8E4M3);
  double operations = 2 * model.head.elements;
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const LayerCount& layer = model.layers[static_cast<size_t>(l)];
    const double elements = layer.attention.elements + layer.router.elements + layer.dense.elements +
                            static_cast<double>(spec.experts_per_token) * layer.expert.elements;
    operations += 2 * rows * elements + AttentionFlops(spec, form, VisiblePairs(0, rows, spec.WindowOf(l)));
  }
  return operations;
}

double PrefillBytes(const weights::ModelSpec& spec, const ModelCount& model, int64_t tokens) {
  const auto experts = static_cast<double>(std::min(spec.num_experts, tokens * spec.experts_per_token));
  double bytes = model.head.bytes;
  for (const LayerCount& layer : model.layers) {
    bytes += layer.attention.bytes + layer.router.bytes + layer.dense.bytes + experts * layer.expert.bytes;
  }
  return bytes;
}

double DecodeBytes(const weights::ModelSpec& spec, int64_t position, int64_t sequences, int64_t experts, DType linear) {
  return DecodeBytes(spec, CountModel(spec, linear), position, sequences, experts);
}

double DecodeBytes(const weights::ModelSpec& spec, const ModelCount& model, int64_t position, int64_t sequences,
                   int64_t experts) {
  double bytes = model.head.bytes + static_cast<double>(experts) * model.expert_bytes();
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const LayerCount& layer = model.layers[static_cast<size_t>(l)];
    const int64_t window = spec.WindowOf(l), seen = window == 0 ? position + 1 : std::min(position + 1, window);
    bytes += layer.attention.bytes + layer.router.bytes + layer.dense.bytes;
    bytes += KvBytes(spec, static_cast<double>(seen * sequences));
  }
  return bytes;
}

}  // namespace moestro::roofline
