#include <functional>
#include <limits>

#include "common/model/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCapacity = 64;

absl::Status CreateStatus(const SyntheticOptions& options) {
  const SyntheticSegment model = MakeSyntheticSegment(options);
  WorkerPool pool(1);
  return Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).status();
}

TEST(EngineCreate, NamesWhatTheSegmentLacks) {
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.1.self_attn.kv_b_proj.key_transposed", "model.layers.0.mlp.up_proj.weight",
        "model.layers.2.mlp.gate.e_score_correction_bias", "model.layers.2.mlp.experts.7.down_proj.weight",
        "model.layers.1.mlp.shared_experts.gate_proj.weight"}) {
    const absl::Status status = CreateStatus({.spec = SmallSpec(), .omitted = {name}});
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(EngineCreate, NamesMissingTensorsOfGroupedQueries) {
  for (const char* name : {"model.layers.0.self_attn.k_proj.weight", "model.layers.2.self_attn.q_norm.weight"}) {
    const absl::Status status = CreateStatus({.spec = SmallGroupedSpec(), .omitted = {name}});
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(EngineCreate, RefusesGroupedQueriesItCannotRun) {
  SyntheticSegment model = MakeSyntheticSegment({.spec = SmallGroupedSpec()});
  weights::ModelSpec& spec = reinterpret_cast<weights::SegmentHeader*>(model.memory.data())->spec;
  const weights::ModelSpec good = spec;
  WorkerPool pool(1);
  EXPECT_TRUE(Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).ok());
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"num_kv_heads", [&] { spec.num_kv_heads = 3; }},
      {"num_kv_heads", [&] { spec.num_kv_heads = -1; }},
      {"v_head_dim", [&] { spec.v_head_dim = spec.qk_rope_head_dim = 32; }},
      {"qk_rope_head_dim", [&] { spec.qk_rope_head_dim = 32; }},
      {"rotary_dims", [&] { spec.rotary_dims = 66; }},
      {"norms_of_all_heads", [&] { spec.norms_of_all_heads = spec.heads_without_norms = 1; }},
      {"rotary_dims", [&] { spec.rotary_dims = 31; }},
      {"rotary_dims", [&] { spec.rotary_dims = -2; }},
      {"kv_lora_rank", [&] { spec.kv_lora_rank = 64; }},
      {"q_lora_rank", [&] { spec.q_lora_rank = 64; }},
      {"clip_qkv", [&] { spec.clip_qkv = -1; }},
      {"clip_qkv", [&] { spec.clip_qkv = std::numeric_limits<double>::quiet_NaN(); }},
      {"sliding_window", [&] { spec.sliding_window = 5; }},
      {"sliding_window", [&] { spec.windowed_layers[1] = 1; }},
      {"sliding_window", [&] { spec.sliding_window = -1; }},
      {"swiglu_limit", [&] { spec.swiglu_limit = -1; }},
      {"swiglu_alpha", [&] { spec.swiglu_limit = 7; }},
      {"qk_nope_head_dim", [&] { spec.qk_nope_head_dim = 64; }}};
  for (const auto& [field, damage] : cases) {
    spec = good;
    damage();
    const absl::Status status = Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(status.message(), HasSubstr(field));
  }
}

TEST(EngineCreate, RefusesShapesThatDoNotFitTheSpec) {
  SyntheticSegment model = MakeSyntheticSegment({.spec = SmallSpec()});
  WorkerPool pool(1);
  EXPECT_TRUE(Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).ok());
  // The engine knows the shapes only from the header: change one number there.
  reinterpret_cast<weights::SegmentHeader*>(model.memory.data())->spec.moe_intermediate_size = 80;
  const absl::Status status = Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("model.layers.1.mlp.experts.0.gate_proj.weight"));
  EXPECT_THAT(status.message(), HasSubstr("[72, 160]"));
}

TEST(EngineCreate, RefusesSpecsItCannotRun) {
  SyntheticSegment model = MakeSyntheticSegment({.spec = SmallSpec()});
  weights::ModelSpec& spec = reinterpret_cast<weights::SegmentHeader*>(model.memory.data())->spec;
  const weights::ModelSpec good = spec;
  WorkerPool pool(1);
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"num_heads", [&] { spec.num_heads = 0; }},
      {"kv_lora_rank", [&] { spec.kv_lora_rank = 96; }},
      {"qk_nope_head_dim", [&] { spec.qk_nope_head_dim = 100; }},
      {"v_head_dim", [&] { spec.v_head_dim = 32; }},
      {"qk_rope_head_dim", [&] { spec.qk_rope_head_dim = 31; }},
      {"rotary_dims", [&] { spec.rotary_dims = 16; }},
      {"qkv_biases", [&] { spec.qkv_biases = 1; }},
      {"sliding_window", [&] { spec.sliding_window = 5; }},
      {"attention_sinks", [&] { spec.attention_sinks = 1; }},
      {"token_count", [&] { spec.token_count = spec.vocab_size + 1; }},
      {"num_expert_groups", [&] { spec.num_expert_groups = 3; }},
      {"experts_topk_groups", [&] { spec.experts_topk_groups = 5; }},
      {"experts_per_token", [&] { spec.experts_per_token = 5; }},
      {"num_experts", [&] { spec.num_experts = 0; }},
      {"first_dense_layers", [&] { spec.first_dense_layers = -1; }},
      {"intermediate_size",
       [&] {
         spec.first_dense_layers = 0;
         spec.dense_layers[0] = 2;
         spec.intermediate_size = 0;
       }},
      {"shared_expert_width", [&] { spec.shared_expert_width = -1; }},
      {"shared_expert_gate",
       [&] {
         spec.num_shared_experts = 0;
         spec.shared_expert_gate = 1;
       }},
      {"rope_theta", [&] { spec.rope_theta = std::numeric_limits<double>::quiet_NaN(); }},
      {"yarn.factor", [&] { spec.yarn.factor = 0; }},
      {"llama3_rope", [&] { spec.llama3_rope = 1; }},
      {"yarn.beta_fast", [&] { spec.yarn.beta_fast = 0; }},
      {"yarn.original_max_position_embeddings", [&] { spec.yarn.original_max_position_embeddings = 0; }}};
  for (const auto& [field, damage] : cases) {
    spec = good;
    damage();
    const absl::Status status = Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 4}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(status.message(), HasSubstr(field));
  }
  spec = good;
  EXPECT_THAT(Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 0}).status().message(),
              HasSubstr("max_rows"));
}

class EngineForward : public ::testing::Test {
 protected:
  static constexpr int64_t kMaxRows = 8;

  absl::Status Run(std::vector<EngineRow> rows) { return Run(*engine_, rows); }
  absl::Status Run(Engine& engine, const std::vector<EngineRow>& rows) {
    return engine.Forward({rows, pages_, MlaForm::kAbsorbed}, NeverInterrupted,
                          [this](int64_t, std::span<const float>) { ++delivered_; });
  }
  void ExpectInvalid(const std::vector<EngineRow>& rows, const char* message) {
    const absl::Status status = Run(rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(delivered_, 0);
  }

  SyntheticSegment model_ = MakeSyntheticSegment({.spec = SmallSpec(), .nan_token = 13});
  WorkerPool pool_{1};
  std::unique_ptr<Engine> engine_ = *Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = kMaxRows});
  TestSequence first_{SmallSpec(), kCapacity};
  TestSequence second_{SmallSpec(), kCapacity};
  std::vector<kv::KvPages> pages_ = {first_.pages(), second_.pages()};
  int delivered_ = 0;
};

TEST_F(EngineForward, ReportsItsLimits) {
  EXPECT_EQ(engine_->max_rows(), kMaxRows);
  EXPECT_EQ(engine_->spec().hidden_size, SmallSpec().hidden_size);
}

TEST_F(EngineForward, RefusesBadRows) {
  ExpectInvalid({}, "1 to 8 rows, not 0");
  ExpectInvalid(std::vector<EngineRow>(9), "1 to 8 rows, not 9");
  ExpectInvalid({{.token = -1}}, "row 0: token id -1");
  ExpectInvalid({{.token = 200}}, "token id 200 is outside the vocabulary of 200 tokens");
  ExpectInvalid({{.token = 1, .position = -1}}, "position -1");
  ExpectInvalid({{.token = 1, .position = 64}}, "which hold 64 tokens");
  ExpectInvalid({{.token = 1, .position = 4096}}, "context of 4096 tokens");
  ExpectInvalid({{.token = 1, .sequence = 2}}, "sequence 2 is out of range: there are 2");
  ExpectInvalid({{.token = 1, .sequence = -1}}, "sequence -1 is out of range: there are 2");
  ExpectInvalid({{.token = 1, .position = 0}, {.token = 1, .position = 2}}, "row 1: position 2 does not follow");
  ExpectInvalid({{.token = 1, .position = 1}, {.token = 1, .position = 1}}, "row 1: position 1 does not follow");
  ExpectInvalid({{.token = 1, .position = 0, .sequence = 0},
                 {.token = 1, .position = 0, .sequence = 1},
                 {.token = 1, .position = 1, .sequence = 0}},
                "row 2: the rows of sequence 0 are not consecutive");
}

TEST_F(EngineForward, RefusesPagesOfAnotherModel) {
  weights::ModelSpec other = SmallSpec();
  other.num_layers = 2;
  const TestSequence sequence(other, kCapacity);
  pages_[1] = sequence.pages();
  ExpectInvalid({{.token = 1}}, "2 layers");
}

TEST_F(EngineForward, PaddingIdsAreMinusInfinity) {
  const Logits logits = Forward(*engine_, MakeRows(std::vector<int32_t>{5}, 0), pages_, MlaForm::kAbsorbed);
  ASSERT_EQ(logits[0].size(), 210u);
  EXPECT_TRUE(std::isfinite(logits[0][199]));
  for (size_t id = 200; id < 210; ++id) EXPECT_EQ(logits[0][id], -std::numeric_limits<float>::infinity());
}

// Fixtures that let the model generate rely on it.
TEST_F(EngineForward, ATokenWhoseEmbeddingIsNanTiesWithTheOneBefore) {
  const std::vector<int32_t> tokens = {5, 90, 12};
  for (const std::vector<float>& row : Forward(*engine_, MakeRows(tokens, 0), pages_, MlaForm::kAbsorbed)) {
    EXPECT_EQ(row[13], row[12]);
    EXPECT_NE(row[13], row[14]);
  }
}

TEST_F(EngineForward, NanInTheRouterIsAnError) {
  const absl::Status status = Run({{.token = 1, .position = 0}, {.token = 13, .position = 1}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("layer 1"));
  EXPECT_THAT(status.message(), HasSubstr("NaN"));
}

TEST_F(EngineForward, NanLogitsAreAnErrorThatNamesThePosition) {
  weights::ModelSpec dense = SmallSpec();
  dense.first_dense_layers = dense.num_layers;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = dense, .nan_token = 13});
  const auto engine = Engine::Create(*model.segment, TestKernels(), pool_, {.max_rows = 4});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE(Run(**engine, {{.token = 1, .position = 0, .sequence = 1, .needs_logits = true}}).ok());
  const absl::Status status = Run(**engine, {{.token = 13, .position = 1, .sequence = 1, .needs_logits = true}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("position 1 of sequence 1"));
  EXPECT_EQ(delivered_, 1);
}

TEST_F(EngineForward, StopsBetweenLayersWithTheGivenStatus) {
  const std::vector<EngineRow> rows = MakeRows(std::vector<int32_t>{1, 2, 3}, 0);
  for (int allowed = 0; allowed <= 3; ++allowed) {
    int asked = 0;
    delivered_ = 0;
    const absl::Status status = engine_->Forward(
        {rows, pages_, MlaForm::kAbsorbed},
        [&] { return asked++ < allowed ? absl::OkStatus() : absl::CancelledError("client gone"); },
        [this](int64_t, std::span<const float>) { ++delivered_; });
    if (allowed == 3) {  // one call per layer, then all logits
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(asked, 3);
      EXPECT_EQ(delivered_, 3);
    } else {
      EXPECT_EQ(status, absl::CancelledError("client gone"));
      EXPECT_EQ(asked, allowed + 1);
      EXPECT_EQ(delivered_, 0);
    }
  }
}

// An interrupted or failed pass leaves nothing behind in the engine.
TEST_F(EngineForward, WorksAfterAnInterruption) {
  const std::vector<EngineRow> rows = MakeRows(std::vector<int32_t>{1, 2, 3}, 0);
  const Logits expected = Forward(*engine_, rows, pages_, MlaForm::kUnabsorbed);
  const auto stop = [] { return absl::CancelledError(""); };
  EXPECT_FALSE(engine_->Forward({rows, pages_, MlaForm::kAbsorbed}, stop, [](int64_t, std::span<const float>) {}).ok());
  EXPECT_FALSE(Run({{.token = 13}}).ok());
  EXPECT_TRUE(SameBits(Forward(*engine_, rows, pages_, MlaForm::kUnabsorbed), expected));
}

}  // namespace
}  // namespace moestro::model
