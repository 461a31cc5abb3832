// What TriMoE's paper serves: three models, and which experts their tokens choose. The paper's recordings (LMSys,
// CodeAlpaca) are not public, so choices are synthetic (common/experts/synthetic_trace.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/checkpoint/config.h"
#include "common/experts/domains/costs.h"

namespace moestro::cli {

struct TriMoeModel {
  const char* title;
  const char* name;  // one of PublishedModels()
  // Of the synthetic choices: from `moestro routing fit` with the model's experts and kTrace* below. They give the
  // paper's share of tokens on cold experts, 8 %, and its accuracy of a moving average, 78 %.
  double popularity;
  double drift;
  // Table 2.
  double expert_gigabytes;
  // Fig. 7 (section 5.2.2): end to end, over the strongest baseline.
  double end_to_end;
};
std::span<const TriMoeModel> TriMoeModels();

// Layers stand for all layers of the model: they differ in chance alone.
inline constexpr int64_t kTraceLayers = 4;
inline constexpr int64_t kTraceSequences = 768;  // smaller batches are the first of them
inline constexpr int64_t kTracePasses = 24;
inline constexpr int64_t kProfiledPasses = 8;  // the first ones: the initial layout is made from them
inline constexpr int64_t kBatches[] = {256, 512, 768};
inline constexpr int64_t kSmallBatches[] = {128, 64, 32};

// Rows of each expert, by pass and layer.
using Loads = std::vector<std::vector<std::vector<int32_t>>>;

struct RoutedLoads {
  std::map<int64_t, Loads> batches;
  double cold_share = 0;  // RoutingStatistics of the largest batch
  double average_accuracy = 0;
};
RoutedLoads MakeLoads(const TriMoeModel& model);
// The same in which all experts are alike, for one batch.
Loads MakeLoadsWithoutSkew(const TriMoeModel& model, int64_t batch);

// Slots of the device in each layer: for the hot experts, a tenth as in RoutingStatistics. The paper keeps more than
// 90 % of the experts' weights in the host's memory, and does not say how many are on the device.
int64_t SlotsOf(const weights::ModelSpec& spec);

// Of one token of each of `batch` sequences at `context` positions, on the device, in one layer: attention with its
// projections, the dense part or the shared expert. Migrations hide behind it. The cache is taken to be on the device:
// the paper's window has no room for its transfers.
double DenseSeconds(const experts::DomainRates& rates, const weights::ModelSpec& spec, int64_t layer, int64_t batch,
                    double context);

// Of all prompts, on the device: every layer takes the longer of products and of its experts over the bus.
double PrefillSeconds(const experts::DomainRates& rates, const weights::ModelSpec& spec, int64_t batch, double prompt);

// Tokens of prompts and outputs. Assumed: the paper prints none.
inline constexpr double kPromptTokens = 128;
inline constexpr double kOutputTokens = 256;
inline constexpr double kMeanContext = kPromptTokens + kOutputTokens / 2;

}  // namespace moestro::cli
