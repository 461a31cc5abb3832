#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

// A window that is no shorter than the context hides nothing.
void CheckWindow(text::JsonFields& config, const weights::ModelSpec& spec) {
  const int64_t positions = spec.max_position_embeddings;
  const int64_t window = config.IntOr("sliding_window", positions, 1, kMaxPositions);
  if (window < positions) {
    config.Unsupported("sliding_window", absl::StrCat(window, " is less than max_position_embeddings = ", positions,
                                                      ": attention within a window is not supported"));
  }
}

void ReadMixtralExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("num_local_experts", 1, kMaxExperts);
  spec->softmax_router = 1;
  spec->norm_topk_prob = 1;
}

}  // namespace

void ReadMixtral(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  spec->heads_without_norms = 1;
  CheckWindow(config, *spec);
  ReadMixtralExperts(config, spec);
  CheckExpertCounts(config, "num_local_experts", *spec);
}

}  // namespace moestro::checkpoint
