#include "services/cli/make_model/geometry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"

namespace moestro {
namespace {

// Small, yet with every irregularity: q_lora_rank and moe_intermediate are no multiples of the 128-element scale block,
// kv_a has 576 rows, and the vocabulary has more rows than the tokenizer has tokens.
Geometry Tiny() {
  Geometry g;
  g.hidden = 256;
  g.layers = 4;
  g.dense_layers = 1;
  g.mtp_layers = 1;
  g.heads = 4;
  g.q_lora_rank = 192;
  g.intermediate = 640;
  g.moe_intermediate = 192;
  g.experts = 16;
  g.experts_per_token = 4;
  g.groups = 4;
  g.topk_groups = 2;
  g.vocab_rows = 2048;
  g.shard_bytes = 5'610'000;  // four shards, and one weight whose scales start the next shard
  return g;
}

// Grouped queries whose heads together are wider than the hidden size, as the published ones are. Every layer has
// experts.
Geometry TinyQwen3() {
  Geometry g;
  g.hidden = 256;
  g.layers = 3;
  g.heads = 8;
  g.kv_heads = 2;
  g.v_head_dim = 64;
  g.moe_intermediate = 192;
  g.experts = 16;
  g.experts_per_token = 4;
  g.groups = 1;
  g.topk_groups = 1;
  g.vocab_rows = 2048;
  g.shard_bytes = 4'000'000;
  return g;
}

// DeepSeek-V3 itself, except for the number of layers.
Geometry Layer() {
  Geometry g;
  g.hidden = 7168;
  g.layers = 2;
  g.dense_layers = 1;
  g.mtp_layers = 0;  // it would double the size of a model that exists to be measured
  g.heads = 128;
  g.q_lora_rank = 1536;
  g.intermediate = 18432;
  g.moe_intermediate = 2048;
  g.experts = 256;
  g.experts_per_token = 8;
  g.groups = 8;
  g.topk_groups = 4;
  g.vocab_rows = 129280;
  g.shard_bytes = 4'300'000'000;
  return g;
}

constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxExperts = 1024;
constexpr int64_t kMaxVocabRows = 1 << 20;

// Keeps the preset's proportions as far as `experts` allows: groups are equal, hold two experts at least (a group's
// score is the sum of its two best), and the kept groups hold enough experts for one token.
void AdaptRouting(int64_t experts, Geometry* g) {
  g->experts = experts;
  g->experts_per_token = std::min(g->experts_per_token, experts);
  const int64_t wanted = g->groups;
  const auto fits = [experts](int64_t groups) { return experts % groups == 0 && experts / groups >= 2; };
  while (g->groups > 1 && !fits(g->groups)) --g->groups;
  g->topk_groups = CeilDiv(g->topk_groups * g->groups, wanted);
  const int64_t group_size = experts / g->groups;
  g->topk_groups = std::max(g->topk_groups, CeilDiv(g->experts_per_token, group_size));
}

absl::Status CheckRange(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value == 0 || (value >= low && value <= high)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", value, "; allowed: ", low, " to ", high, ", or 0 for the preset's value"));
}

}  // namespace

absl::StatusOr<Geometry> ResolveGeometry(const MakeModelOptions& options) {
  if (options.preset != "tiny" && options.preset != "tiny-qwen3" && options.preset != "layer") {
    return absl::InvalidArgumentError(
        absl::StrCat("--preset \"", options.preset, "\" is unknown; use tiny, tiny-qwen3 or layer"));
  }
  if (options.weights != "fp8" && options.weights != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("--weights \"", options.weights, "\" is unknown; use fp8 or bf16"));
  }
  MOE_RETURN_IF_ERROR(CheckRange("--layers", options.layers, 1, kMaxLayers));
  MOE_RETURN_IF_ERROR(CheckRange("--experts", options.experts, 2, kMaxExperts));
  MOE_RETURN_IF_ERROR(CheckRange("--vocab-rows", options.vocab_rows, 1, kMaxVocabRows));
  MOE_RETURN_IF_ERROR(CheckRange("--shard-bytes", options.shard_bytes, 1, int64_t{1} << 50));

  Geometry g = options.preset == "tiny" ? Tiny() : options.preset == "layer" ? Layer() : TinyQwen3();
  g.fp8 = options.weights == "fp8";
  if (options.layers != 0) g.layers = options.layers;
  if (options.experts != 0) AdaptRouting(options.experts, &g);
  if (options.vocab_rows != 0) g.vocab_rows = options.vocab_rows;
  if (options.shard_bytes != 0) g.shard_bytes = options.shard_bytes;
  return g;
}

}  // namespace moestro
