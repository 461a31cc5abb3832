#include "services/cli/paper/trimoe/workload.h"

#include <algorithm>

#include "common/experts/routing_statistics.h"
#include "common/experts/synthetic_trace.h"
#include "common/roofline/intensity.h"
#include "common/roofline/work_count.h"

namespace moestro::cli {
namespace {

experts::SyntheticRouting RoutingOf(const TriMoeModel& model) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(model.name);
  return {.layers = kTraceLayers,
          .experts = spec.num_experts,
          .per_token = spec.experts_per_token,
          .popularity = model.popularity,
          .drift = model.drift,
          .sequences = kTraceSequences,
          .tokens = kTracePasses};
}

// Rows of the pass's first `batch` tokens, by layer and expert.
std::vector<std::vector<int32_t>> RowsOf(const model::RoutingTraceModel& model, const model::RoutingStep& step,
                                         int64_t batch) {
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(model.moe_layers),
                                         std::vector<int32_t>(static_cast<size_t>(model.num_experts)));
  for (int64_t i = 0; i < batch * model.choices_per_token(); ++i) {
    const auto layer = static_cast<size_t>(i / model.experts_per_token % model.moe_layers);
    ++rows[layer][static_cast<size_t>(step.choices[static_cast<size_t>(i)].expert)];
  }
  return rows;
}

// Products of `rows` rows with weights in BF16.
double ProductSeconds(const experts::DomainRates& rates, const roofline::WeightCount& weights, double rows) {
  return std::max(2 * rows * weights.elements / rates.gpu.flops_per_second, weights.bytes / rates.gpu.bytes_per_second);
}

}  // namespace

std::span<const TriMoeModel> TriMoeModels() {
  static constexpr TriMoeModel kModels[] = {{"DeepSeek-V2", "deepseek-v2", 2.2119140625, 0.3966064453125, 422, 2.78},
                                            {"Qwen3-235B-A22B", "qwen3-235b", 2.4306640625, 0.3807373046875, 423, 2.22},
                                            {"GLM-4.5-Air", "glm-4.5-air", 2.4306640625, 0.3807373046875, 190, 2.09}};
  return kModels;
}

RoutedLoads MakeLoads(const TriMoeModel& model) {
  experts::SyntheticTrace trace(RoutingOf(model));
  experts::RoutingStatistics statistics(trace.model());
  RoutedLoads loads;
  model::RoutingStep step;
  while (trace.Next(step)) {
    statistics.Add(step);
    for (const std::span<const int64_t> batches : {std::span<const int64_t>(kBatches), {kSmallBatches}}) {
      for (const int64_t batch : batches) loads.batches[batch].push_back(RowsOf(trace.model(), step, batch));
    }
  }
  loads.cold_share = statistics.ColdShare();
  loads.average_accuracy = statistics.AverageAccuracy();
  return loads;
}

Loads MakeLoadsWithoutSkew(const TriMoeModel& model, int64_t batch) {
  experts::SyntheticRouting routing = RoutingOf(model);
  routing.popularity = routing.drift = routing.bias = 0;
  routing.sequences = batch;
  experts::SyntheticTrace trace(routing);
  Loads loads;
  model::RoutingStep step;
  while (trace.Next(step)) loads.push_back(RowsOf(trace.model(), step, batch));
  return loads;
}

int64_t SlotsOf(const weights::ModelSpec& spec) { return spec.num_experts / 10; }

double DenseSeconds(const experts::DomainRates& rates, const weights::ModelSpec& spec, int64_t layer, int64_t batch,
                    double context) {
  const roofline::ModelCount count = roofline::CountModel(spec, DType::kBF16);
  const roofline::LayerCount& weights = count.layers[static_cast<size_t>(layer)];
  const auto rows = static_cast<double>(batch);
  const roofline::Work attention = roofline::DecodeAttention(spec, rows, context);
  double seconds =
      std::max(attention.operations / rates.gpu.flops_per_second, attention.bytes / rates.gpu.bytes_per_second);
  for (const roofline::WeightCount& part : {weights.attention, weights.router, weights.dense}) {
    seconds += ProductSeconds(rates, part, rows);
  }
  return seconds;
}

double PrefillSeconds(const experts::DomainRates& rates, const weights::ModelSpec& spec, int64_t batch, double prompt) {
  const roofline::ModelCount count = roofline::CountModel(spec, DType::kBF16);
  const double rows = static_cast<double>(batch) * prompt;
  double seconds = 0;
  for (const roofline::LayerCount& layer : count.layers) {
    const double elements = layer.attention.elements + layer.router.elements + layer.dense.elements +
                            static_cast<double>(spec.experts_per_token) * layer.expert.elements;
    seconds += std::max(2 * rows * elements / rates.gpu.flops_per_second,
                        static_cast<double>(spec.num_experts) * layer.expert.bytes / rates.bus_bytes_per_second);
  }
  return seconds;
}

}  // namespace moestro::cli
