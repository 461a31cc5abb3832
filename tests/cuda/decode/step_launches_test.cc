// The launches that simulations charge are those that the model of a GPU counts.
#include "common/engine/step_launches.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/decode/hybrid_subject.h"
#include "tests/cuda/emulation/runtime.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::decode {
namespace {

weights::ModelSpec Latents(void (*change)(weights::ModelSpec&)) {
  weights::ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  change(spec);
  return spec;
}

std::vector<std::pair<std::string, weights::ModelSpec>> Specs() {
  std::vector<std::pair<std::string, weights::ModelSpec>> all = {
      {"latents", Latents([](weights::ModelSpec&) {})},
      {"no query rank", Latents([](weights::ModelSpec& spec) { spec.q_lora_rank = 0; })},
      {"no shared expert", Latents([](weights::ModelSpec& spec) { spec.num_shared_experts = 0; })},
      {"a gate", Latents([](weights::ModelSpec& spec) {
         spec.shared_expert_width = 184;
         spec.shared_expert_gate = 1;
       })}};
  for (GroupedForm& form : GroupedForms()) {
    all.emplace_back(form.name, std::move(form.spec));
    all.back().second.num_layers = 2;
  }
  all.emplace_back("layer norms and a clamp", SmallGroupedSpec());
  all.back().second.layer_norms = 1;
  all.back().second.clip_qkv = 0.7;
  all.back().second.num_layers = 2;
  return all;
}

// of_attention, of_mlp: launches beside those.
void Check(const weights::ModelSpec& spec, const SyntheticSegment& model, int64_t of_attention = 0,
           int64_t of_mlp = 0) {
  HybridSubject subject(*model.segment, /*max_rows=*/2, /*kv_pages=*/2);
  const TestPool pool(spec, /*sequences=*/2, /*tokens=*/64);
  const std::vector<kv::KvPages> pages = {pool.pages(0), pool.pages(1)};
  const std::vector<model::EngineRow> rows = {{.token = 30, .sequence = 0, .needs_logits = true},
                                              {.token = 31, .sequence = 1, .needs_logits = true}};
  const model::CheckedBatch batch = model::CheckBatch(spec, /*max_rows=*/2, {rows, pages}).value();
  const auto stream = subject.device().NewStream("step").value();
  engine::CudaDecode& compute = subject.compute();
  const auto count = [&](const absl::Status& launched) {
    EXPECT_TRUE(launched.ok()) << launched;
    EXPECT_TRUE(stream->Synchronize().ok());
    return std::exchange(emulation::Gpu().launches, 0);
  };
  const engine::StepLaunches expected = engine::LaunchesOf(spec);
  compute.Begin(0, 0, batch);
  count(absl::OkStatus());
  EXPECT_EQ(count(compute.Embed(0, *stream)), expected.embed);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool moe = spec.IsMoeLayer(layer);
    const int64_t left_out = layer > 0 && spec.IsMoeLayer(layer - 1) ? expected.left_out : 0;
    EXPECT_EQ(count(compute.Attend(0, layer, *stream)),
              (moe ? expected.attend_moe : expected.attend_dense + of_mlp) + of_attention - left_out);
    if (!moe) continue;
    EXPECT_EQ(count(compute.Shared(0, layer, *stream)), expected.shared + of_mlp);
    const std::vector<float> sums(static_cast<size_t>(2 * spec.hidden_size));
    ASSERT_TRUE(stream
                    ->CopyToDevice(reinterpret_cast<uint8_t*>(compute.expert_io(0).sums),
                                   reinterpret_cast<const uint8_t*>(sums.data()),
                                   std::ssize(sums) * int64_t{sizeof(float)})
                    .ok());
    EXPECT_EQ(count(compute.Combine(0, layer, *stream)), expected.combine);
  }
  EXPECT_EQ(count(compute.Logits(rows, *stream, [](int64_t, std::span<const float>) {})),
            expected.head + 2 * expected.head_row);
}

TEST(StepLaunchesTest, AreThoseOfTheKernels) {
  for (const auto& [name, spec] : Specs()) {
    SCOPED_TRACE(name);
    Check(spec, MakeSyntheticSegment({.spec = spec}));
  }
}

// Norms code their outputs. Attention's output and what a down projection multiplies need a launch, and so does the
// rotation of queries.
TEST(StepLaunchesTest, OfInt8AreThreeMore) {
  const weights::ModelSpec spec = Latents([](weights::ModelSpec&) {});
  Check(spec, MakeSyntheticSegment({.spec = spec, .type = DType::kI8}), /*of_attention=*/2, /*of_mlp=*/1);
}

TEST(StepLaunchesTest, OfALayerOfDeepSeekV3) {
  const engine::StepLaunches launches = engine::LaunchesOf(Latents([](weights::ModelSpec&) {}));
  EXPECT_EQ(launches.attend_moe - launches.left_out + launches.shared + launches.combine, 14);
}

}  // namespace
}  // namespace moestro::decode
