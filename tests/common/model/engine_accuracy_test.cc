// Logits against a reference in double precision that shares no code with the engine.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>

#include "common/model/engine.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/random_blocks.h"
#include "tests/support/reference_model.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {

using weights::ModelSpec;

namespace {

using Rounding = ReferenceModel::Rounding;

constexpr int64_t kTokens = 130;  // two page boundaries
constexpr MlaForm kForms[] = {MlaForm::kAbsorbed, MlaForm::kUnabsorbed};

std::string Name(const CpuKernels& kernels, MlaForm form) {
  return std::string(kernels.isa) + (form == MlaForm::kAbsorbed ? " absorbed" : " unabsorbed");
}

Logits RunEngine(const SyntheticSegment& model, const CpuKernels& kernels, MlaForm form,
                 const std::vector<int32_t>& tokens) {
  WorkerPool pool(2);
  auto engine = Engine::Create(*model.segment, kernels, pool, {.max_rows = 48});
  EXPECT_TRUE(engine.ok()) << engine.status();
  const TestSequence sequence(model.segment->spec(), static_cast<int64_t>(tokens.size()));
  return RunPrompt(**engine, sequence, tokens, 48, form);
}

// Padding ids are -inf in the engine and numbers in the reference.
std::span<const double> ValidLogits(const ModelSpec& spec, const std::vector<double>& logits) {
  return std::span(logits).first(spec.token_count);
}

// The model of the tiles, which takes most of the time, computes one model of each kind: its kernels have tests of
// every format and shape (tests/common/kernels).
std::vector<const CpuKernels*> Tables(bool and_the_model) {
  return and_the_model ? EveryTestKernels() : DistinctKernels();
}

// Against exact arithmetic, and every kernel table and form of MLA against each other.
void ExpectCloseToExact(const ModelSpec& spec, bool fp8, std::optional<DType> type = {}, bool and_the_model = false) {
  // Biases decide the routing: the choice of experts is not continuous, so no tolerance covers another choice.
  const SyntheticSegment model =
      MakeSyntheticSegment({.spec = spec, .fp8 = fp8, .type = type, .decisive_biases = true});
  const std::vector<int32_t> tokens = RandomTokens(kTokens, spec.token_count, 3);
  const ReferenceModel::Result reference = ReferenceModel(*model.segment).Run(tokens, Rounding::kNone);
  EXPECT_GT(*std::ranges::min_element(reference.router_margin), 1);
  Logits first;
  for (const CpuKernels* kernels : Tables(and_the_model)) {
    for (const MlaForm form : kForms) {
      const Logits logits = RunEngine(model, *kernels, form, tokens);
      if (first.empty()) first = logits;
      double worst = 0;
      double worst_pair = 0;
      for (int64_t t = 0; t < kTokens; ++t) {
        worst = std::max(worst, ToleranceRatio(spec, logits[t], ValidLogits(spec, reference.logits[t])));
        const std::vector<double> other(first[t].begin(), first[t].begin() + spec.token_count);
        worst_pair = std::max(worst_pair, ToleranceRatio(spec, logits[t], other));
      }
      std::printf("%s: error / tolerance %.3f, against the first %.3f\n", Name(*kernels, form).c_str(), worst,
                  worst_pair);
      EXPECT_LT(worst, 1);
      EXPECT_LT(worst_pair, std::sqrt(2.0));  // both have rounded
    }
  }
}

TEST(EngineAccuracy, Fp8WeightsAgainstExactArithmetic) {
  ExpectCloseToExact(SmallSpec(), true, {}, /*and_the_model=*/true);
}

TEST(EngineAccuracy, Bf16WeightsAgainstExactArithmetic) { ExpectCloseToExact(SmallSpec(), false); }

TEST(EngineAccuracy, DenseLayersBetweenOthersAgainstExactArithmetic) { ExpectCloseToExact(SmallMixedSpec(), true); }

TEST(EngineAccuracy, GatedSharedExpertAgainstExactArithmetic) {
  for (const bool fp8 : {true, false}) ExpectCloseToExact(SmallGatedSpec(), fp8);
}

// Every linear layer, the embedding and the head in F16 or in a format of blocks: rows of one or two packed blocks.
TEST(EngineAccuracy, FormatsOfBlocksAgainstExactArithmetic) {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;
  spec.hidden_size = spec.moe_intermediate_size = 256;
  spec.num_heads = 4;
  std::vector<DType> types(std::begin(testing::kBlockFormats), std::end(testing::kBlockFormats));
  types.push_back(DType::kF16);
  for (const DType type : types) {
    SCOPED_TRACE(DTypeName(type));
    ExpectCloseToExact(spec, /*fp8=*/false, type);
  }
}

// Latents are expanded in BF16.
TEST(EngineAccuracy, FormatsOfBlocksWithLatentsAgainstExactArithmetic) {
  ModelSpec spec = SmallSpec();
  spec.q_lora_rank = spec.moe_intermediate_size = 64;
  spec.intermediate_size = 96;
  ExpectCloseToExact(spec, /*fp8=*/false, DType::kQ8_0);
}

// Without biases, only the choice of all experts is certain.
TEST(EngineAccuracy, GroupedQueriesAgainstExactArithmetic) {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;
  for (const bool fp8 : {true, false}) ExpectCloseToExact(spec, fp8);
  spec.heads_without_norms = 1;
  ExpectCloseToExact(spec, /*fp8=*/false);
  spec.layer_norms = 1;
  spec.clip_qkv = 0.7;
  ExpectCloseToExact(spec, /*fp8=*/false);
  spec.qkv_biases = 1;
  ExpectCloseToExact(spec, /*fp8=*/true);
}

TEST(EngineAccuracy, FormsOfGroupedQueriesAgainstExactArithmetic) {
  for (const GroupedForm& form : GroupedForms()) {
    SCOPED_TRACE(form.name);
    ExpectCloseToExact(form.spec, /*fp8=*/false);
  }
}

// Against the reference with the engine's roundings, in models of one layer. What remains is the error of F32 sums:
// some 2^-20 of the logits for each of about 8 linears, together well below 2^-17. One rounding too many or too few
// shows as 2^-9. So does a sum that falls on the other side of a BF16 boundary, but in few positions only: the median
// is free of it. In deeper models it spreads to all positions.
void ExpectSameRoundings(const char* name, const ModelSpec& spec, bool fp8 = true, bool and_the_model = false) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .fp8 = fp8});
  const std::vector<int32_t> tokens = RandomTokens(kTokens, spec.token_count, 5);
  ReferenceModel reference(*model.segment);
  for (const MlaForm form : kForms) {
    const auto expected =
        reference.Run(tokens, form == MlaForm::kAbsorbed ? Rounding::kAbsorbed : Rounding::kUnabsorbed);
    for (const CpuKernels* kernels : Tables(and_the_model)) {
      const Logits logits = RunEngine(model, *kernels, form, tokens);
      std::vector<double> errors;
      for (int64_t t = 0; t < kTokens; ++t) {
        const auto valid = ValidLogits(spec, expected.logits[t]);
        errors.push_back(ToleranceRatio(spec, logits[t], valid) * kSigmas * RelativeDeviation(spec));
      }
      std::ranges::sort(errors);
      std::printf("%s, %s: median error 2^%.1f, largest 2^%.1f\n", name, Name(*kernels, form).c_str(),
                  std::log2(errors[kTokens / 2]), std::log2(errors.back()));
      EXPECT_LT(errors[kTokens / 2], 0x1p-17) << name;
      EXPECT_LT(errors.back(), kSigmas * RelativeDeviation(spec)) << name;
    }
  }
}

ModelSpec OneLayer(bool moe) {
  ModelSpec spec = SmallSpec();
  spec.num_layers = 1;
  spec.first_dense_layers = moe ? 0 : 1;
  return spec;
}

TEST(EngineRoundings, MoeLayer) { ExpectSameRoundings("MoE", OneLayer(true), /*fp8=*/true, /*and_the_model=*/true); }

TEST(EngineRoundings, GatedSharedExpert) {
  ModelSpec spec = SmallGatedSpec();
  spec.num_layers = 1;
  spec.first_dense_layers = 0;
  ExpectSameRoundings("gated shared expert", spec);
}

TEST(EngineRoundings, DenseLayerInBf16) {
  ExpectSameRoundings("dense BF16", OneLayer(false), /*fp8=*/false, /*and_the_model=*/true);
}

TEST(EngineRoundings, OneGroupWithoutSharedExpert) {
  ModelSpec spec = OneLayer(true);
  spec.num_expert_groups = spec.experts_topk_groups = 1;
  spec.num_shared_experts = 0;
  spec.norm_topk_prob = 0;
  ExpectSameRoundings("one group", spec);
}

TEST(EngineRoundings, GroupsByTheirLargest) {
  ModelSpec spec = OneLayer(true);
  spec.softmax_router = 1;
  spec.largest_of_group = 1;
  spec.norm_topk_prob = 0;
  spec.routed_scaling_factor = 4;
  spec.num_shared_experts = 2;
  spec.yarn.mscale = spec.yarn.mscale_all_dim = 0.707;
  ExpectSameRoundings("groups by their largest", spec);
}

TEST(EngineRoundings, DirectQueriesAndPlainRope) {
  ModelSpec spec = OneLayer(true);
  spec.q_lora_rank = 0;
  spec.num_shared_experts = 2;
  spec.yarn = {};
  spec.rms_norm_eps = 1e-2;  // large enough to distinguish the norms
  spec.lora_norm_eps = 1e-3;
  ExpectSameRoundings("direct queries", spec);
}

ModelSpec OneGroupedLayer() {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_layers = 1;
  return spec;
}

TEST(EngineRoundings, GroupedQueries) {
  ExpectSameRoundings("grouped queries", OneGroupedLayer(), /*fp8=*/true, /*and_the_model=*/true);
}

TEST(EngineRoundings, HeadsWithoutNorms) {
  ModelSpec spec = OneGroupedLayer();
  spec.heads_without_norms = 1;
  ExpectSameRoundings("heads without norms", spec);
}

TEST(EngineRoundings, FormsOfGroupedQueries) {
  for (GroupedForm form : GroupedForms()) {
    form.spec.num_layers = 1;
    ExpectSameRoundings(form.name, form.spec);
  }
}

TEST(EngineRoundings, BiasesBeforeTheNorms) {
  ModelSpec spec = OneGroupedLayer();
  spec.qkv_biases = 1;
  ExpectSameRoundings("biases", spec);
}

// A limit that every other number exceeds.
TEST(EngineRoundings, LayerNormsAndAClamp) {
  ModelSpec spec = OneGroupedLayer();
  spec.heads_without_norms = 1;
  spec.layer_norms = 1;
  spec.clip_qkv = 0.7;
  ExpectSameRoundings("layer norms", spec);
}

TEST(EngineRoundings, OneKvHeadPlainRopeWeightsAsTheyAre) {
  ModelSpec spec = OneGroupedLayer();
  spec.num_kv_heads = 1;
  spec.yarn = {};
  spec.rms_norm_eps = 1e-2;  // large enough to see in the norms of heads
  spec.norm_topk_prob = 0;
  ExpectSameRoundings("one kv head", spec, /*fp8=*/false);
}

TEST(EngineRoundings, AKvHeadForEveryHead) {
  ModelSpec spec = OneGroupedLayer();
  spec.num_kv_heads = spec.num_heads;
  spec.qk_rope_head_dim = spec.v_head_dim = 128;
  ExpectSameRoundings("no groups", spec);
}

TEST(EngineRoundings, YarnThatScalesTheAmplitude) {
  ModelSpec spec = OneLayer(false);
  spec.yarn.mscale_all_dim = 0.5;
  spec.v_head_dim = 256;
  ExpectSameRoundings("amplitude", spec);
}

}  // namespace
}  // namespace moestro::model
