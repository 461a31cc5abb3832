#include "common/engine/step_launches.h"

namespace moestro::engine {
namespace {

constexpr int64_t kNorm = 1, kLinear = 1, kBias = 1, kClamp = 1, kGatedMlp = 2;  // gate and up are one
constexpr int64_t kSplitAttention = 2;                                           // and the merge of its parts

int64_t LatentAttention() {
  constexpr int64_t kKvAndQueriesDown = 1, kStoreAndNorm = 1, kQueries = 1, kKeys = 1, kValues = 1;
  return kKvAndQueriesDown + kStoreAndNorm + kQueries + kKeys + kSplitAttention + kValues;
}

int64_t GroupedAttention(const weights::ModelSpec& spec) {
  constexpr int64_t kProjections = 3, kStore = 1, kRotate = 1;
  int64_t launches = kProjections * kLinear + kStore + kRotate + kSplitAttention;
  if (spec.qkv_biases != 0) launches += 3 * kBias;
  if (spec.clip_qkv != 0) launches += 2 * kClamp;  // keys and values are one
  if (spec.heads_without_norms == 0) launches += 2 * kNorm;
  return launches;
}

}  // namespace

StepLaunches LaunchesOf(const weights::ModelSpec& spec) {
  constexpr int64_t kOutput = 1, kChoice = 1;
  const bool grouped = spec.attention_kind() == weights::AttentionKind::kGroupedQueries;
  const int64_t attention = kNorm + (grouped ? GroupedAttention(spec) : LatentAttention()) + kOutput;
  const bool gated = spec.shared_expert_gate != 0;
  return {
      .embed = 1,
      .attend_moe = attention + kNorm + kLinear + (spec.router_bias != 0 ? kBias : 0) + (gated ? kLinear : 0) + kChoice,
      .attend_dense = attention + kNorm + kGatedMlp,
      .left_out = kNorm,
      .shared = spec.shared_intermediate_size() > 0 ? kGatedMlp : 0,
      .combine = 1,
      .head = kLinear,
      .head_row = kNorm};
}

}  // namespace moestro::engine
