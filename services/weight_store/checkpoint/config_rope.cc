#include "services/weight_store/checkpoint/config_rope.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "services/weight_store/checkpoint/config_limits.h"

namespace moestro {
namespace {

// "default" when neither spelling is there.
std::string RopeType(JsonFields& rope) {
  const std::string type = rope.StringOr("rope_type", rope.StringOr("type", "default"));
  if (rope.StringOr("type", type) != type) rope.Fail("rope_type", "contradicts the field type");
  if (type != "default" && type != "yarn") {
    rope.Unsupported("rope_type", absl::StrCat(Describe(type), " is not supported (supported: yarn, or none)"));
  }
  return type;
}

void ReadYarn(JsonFields& config, JsonFields& rope, YarnSpec* yarn) {
  yarn->enabled = 1;
  yarn->factor = rope.Number("factor", 1, 1e4);
  yarn->beta_fast = rope.NumberOr("beta_fast", 32, 1e-3, 1e4);
  yarn->beta_slow = rope.NumberOr("beta_slow", 1, 1e-3, 1e4);
  if (yarn->beta_fast < yarn->beta_slow) rope.Fail("beta_fast", "is less than beta_slow");
  yarn->mscale = rope.NumberOr("mscale", 0, 0, 100);
  yarn->mscale_all_dim = rope.NumberOr("mscale_all_dim", 0, 0, 100);
  yarn->attention_factor = rope.NumberOr("attention_factor", 0, 1e-3, 100);
  // Newer configs may keep the original length beside the rope settings instead of in them.
  constexpr char kOriginal[] = "original_max_position_embeddings";
  JsonFields& holder = rope.Has(kOriginal) || !config.Has(kOriginal) ? rope : config;
  yarn->original_max_position_embeddings = holder.Int(kOriginal, 1, kMaxPositions);
  rope.OnlyBool("truncate", true);
}

}  // namespace

void ReadRope(JsonFields& config, ModelSpec* spec) {
  const bool merged = config.Has("rope_parameters");
  JsonFields rope = config.Sub(merged ? "rope_parameters" : "rope_scaling");
  JsonFields& theta_holder = merged && rope.Has("rope_theta") ? rope : config;
  spec->rope_theta = theta_holder.Number("rope_theta", 1.001, 1e15);
  if (rope.NumberOr("partial_rotary_factor", 1, 0, 1) != 1)
    rope.Unsupported("partial_rotary_factor", "only 1 is supported");
  if (rope.object().empty()) return;
  if (RopeType(rope) == "yarn") ReadYarn(config, rope, &spec->yarn);
}

}  // namespace moestro
