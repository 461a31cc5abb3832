// A whole streamed prefill with the CUDA kernels, on a GPU or the model of one, against the engine on the CPU and
// another implementation's logits and tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config.h"
#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_prefill.h"
#include "common/engine/cuda/supported.h"
#include "common/model/sampler.h"
#include "common/roofline/shapes.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/golden_model.h"
#include "tests/common/model/tolerance.h"
#include "tests/cuda/device.h"
#include "tests/cuda/near.h"
#include "tests/support/random_blocks.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {

using model::MlaForm;

namespace {

constexpr int64_t kDeviceBytes = int64_t{1} << 30;

// A model, the engine on the CPU, and streamed prefills.
class StreamSubject {
 public:
  explicit StreamSubject(const weights::WeightSegment& segment, Int8Activations setting = Int8Activations::kPublished,
                         bool fp8_inputs = false, int64_t tile_rows = engine::kCudaTileRows)
      : segment_(segment),
        kernels_(KernelsFor(setting, fp8_inputs)),
        weights_(model::BindWeights(segment).value()),
        engine_(model::Engine::Create(segment, kernels_, pool_, {.max_rows = 128}).value()),
        device_(device::OpenCudaDevice({.memory_bytes = kDeviceBytes}).value()),
        compute_(*device_, segment.spec(), weights_, setting, fp8_inputs, tile_rows) {}

  const weights::ModelSpec& spec() const { return segment_.spec(); }
  model::Engine& engine() { return *engine_; }
  engine::CudaPrefill& compute() { return compute_; }
  const PipelineReport& report() const { return report_; }

  // Memory that limits a pass to this many rows.
  MemoryLimits LimitsForPassesOf(int64_t rows) {
    const int64_t slots = 2 * SlotBytes(engine::ListModules(spec(), weights_, MlaForm::kUnabsorbed, 1 << 20));
    return {.device_bytes = kDense + slots + compute_.ActivationBytes(rows),
            .dense_bytes = kDense,
            .ring_slots = 2,
            .min_pass_rows = 1};
  }
  static MemoryLimits Ring(int64_t slots) { return {.dense_bytes = kDense, .ring_slots = slots}; }

  // Logits of the last rows, at most 16, of the tokens from `begin` on; the earlier ones are in the sequence's pages.
  model::Logits Stream(const model::TestSequence& sequence, std::span<const int32_t> tokens, int64_t begin,
                       const MemoryLimits& limits) {
    StreamPrefill prefill(*device_, spec(), weights_, compute_, limits);
    std::vector<model::EngineRow> rows = model::MakeRows(tokens.subspan(begin), begin);
    const int64_t wanted = std::min(model::kLogitRows, std::ssize(rows) / kMostPasses + 1);  // all in the last pass
    for (int64_t i = 0; i < std::ssize(rows); ++i) rows[i].needs_logits = i + wanted >= std::ssize(rows);
    const kv::KvPages pages[] = {sequence.pages()};
    model::Logits logits, of_residuals;
    std::vector<float> residuals(rows.size() * spec().hidden_size);
    const absl::Status status =
        prefill.Run(rows, pages, MlaForm::kUnabsorbed, model::NeverInterrupted, {.residuals = residuals},
                    [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(device_->memory_used(), 0);
    report_ = prefill.report();
    // The CPU's head makes the same of what the last layer has left.
    EXPECT_TRUE(
        engine_
            ->Logits(rows, residuals, model::NeverInterrupted,
                     [&](int64_t, std::span<const float> row) { of_residuals.emplace_back(row.begin(), row.end()); })
            .ok());
    ExpectNear(spec(), of_residuals, logits);
    return logits;
  }

 private:
  static constexpr int64_t kDense = 8 << 20;
  static constexpr int64_t kMostPasses = 6;

  static CpuKernels KernelsFor(Int8Activations setting, bool fp8_inputs) {
    CpuKernels kernels = WithSetting(TestKernels(), setting);
    kernels.fp8_activations = fp8_inputs;
    return kernels;
  }

  const weights::WeightSegment& segment_;
  const CpuKernels kernels_;
  const model::ModelWeights weights_;
  WorkerPool pool_{2};
  const std::unique_ptr<model::Engine> engine_;
  const std::unique_ptr<device::Device> device_;
  engine::CudaPrefill compute_;
  PipelineReport report_;
};

class GoldenPromptTest : public ::testing::Test {
 protected:
  explicit GoldenPromptTest(const absl::StatusOr<model::TinyModel>& model = model::Tiny()) : model_(model) {}
  void SetUp() override {
    ASSERT_TRUE(model_.ok()) << model_.status();
    subject_ = std::make_unique<StreamSubject>(*model_->owned.segment);
  }
  const weights::ModelSpec& spec() const { return subject_->spec(); }

  static int64_t Tokens(const model::GoldenCase& golden) { return std::ssize(golden.prompt); }

  // Logits within the tolerance of the other implementation's, KV within that of the CPU's; decoding on the CPU from
  // this KV gives the greedy tokens.
  void Check(const model::GoldenCase& golden, const model::TestSequence& sequence, const model::Logits& logits) {
    ASSERT_FALSE(logits.empty());
    for (size_t i = 0; i < logits.size(); ++i) {
      const model::GoldenPosition& position = golden.positions[golden.positions.size() - logits.size() + i];
      const double rms = position.norm / std::sqrt(static_cast<double>(golden.token_count));
      for (size_t k = 0; k < position.ids.size(); ++k) {
        ASSERT_NEAR(logits[i][static_cast<size_t>(position.ids[k])], position.logits[k],
                    model::kSigmas * model::RelativeDeviation(spec()) * rms)
            << "row " << i << " of the last " << logits.size();
      }
    }
    const model::TestSequence expected(spec(), Tokens(golden));
    const model::Logits expected_logits =
        model::RunPrompt(subject_->engine(), expected, golden.prompt, 128, MlaForm::kUnabsorbed);
    ExpectNear(spec(), logits, expected_logits);
    ExpectNear(spec(), sequence.Contents(Tokens(golden)), expected.Contents(Tokens(golden)));

    const kv::KvPages pages[] = {sequence.pages()};
    std::vector<float> last = logits.back();
    for (size_t step = 0; step < golden.greedy.size(); ++step) {
      const int32_t wanted[] = {golden.greedy[step]};
      ASSERT_EQ(model::ComputeLogprobs(last, wanted[0], 1).top[0].id, wanted[0]) << "greedy token " << step;
      const int64_t position = Tokens(golden) + static_cast<int64_t>(step);
      last = model::Forward(subject_->engine(), model::MakeRows(wanted, position), pages, MlaForm::kAbsorbed)[0];
    }
  }

  void CheckFrom(const model::GoldenCase& golden, int64_t begin, const MemoryLimits& limits) {
    SCOPED_TRACE(::testing::Message() << Tokens(golden) << " tokens from " << begin);
    const model::TestSequence sequence(spec(), Tokens(golden) + std::ssize(golden.greedy));
    if (begin > 0) {
      model::RunPrompt(subject_->engine(), sequence, std::span(golden.prompt).first(begin), 128, MlaForm::kUnabsorbed);
    }
    Check(golden, sequence, subject_->Stream(sequence, golden.prompt, begin, limits));
  }

  const model::GoldenCase& CaseOf(int64_t tokens) const {
    return *std::ranges::find(model_->cases, tokens, [](const model::GoldenCase& c) { return Tokens(c); });
  }

  // The model of a GPU takes minutes for 300 tokens, and as long for 63 or 64 as for 65.
  void CheckCases() {
    for (const model::GoldenCase& golden : model_->cases) {
      const int64_t tokens = Tokens(golden);
      if (cuda::DeviceName() != "emulation" || tokens <= 2 || tokens == 65)
        CheckFrom(golden, 0, StreamSubject::Ring(16));
    }
  }

  const absl::StatusOr<model::TinyModel>& model_;
  std::unique_ptr<StreamSubject> subject_;
};

TEST_F(GoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class MixtralGoldenPromptTest : public GoldenPromptTest {
 protected:
  MixtralGoldenPromptTest() : GoldenPromptTest(model::TinyMixtral()) {}
};

TEST_F(MixtralGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

TEST_F(MixtralGoldenPromptTest, AfterACachedPrefix) { CheckFrom(CaseOf(65), 55, StreamSubject::Ring(4)); }

class DeepSeekV2GoldenPromptTest : public GoldenPromptTest {
 protected:
  DeepSeekV2GoldenPromptTest() : GoldenPromptTest(model::TinyDeepSeekV2()) {}
};

TEST_F(DeepSeekV2GoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class DeepSeekV2LiteGoldenPromptTest : public GoldenPromptTest {
 protected:
  DeepSeekV2LiteGoldenPromptTest() : GoldenPromptTest(model::TinyDeepSeekV2Lite()) {}
};

TEST_F(DeepSeekV2LiteGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class KimiK2GoldenPromptTest : public GoldenPromptTest {
 protected:
  KimiK2GoldenPromptTest() : GoldenPromptTest(model::TinyKimiK2()) {}
};

TEST_F(KimiK2GoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class GlmGoldenPromptTest : public GoldenPromptTest {
 protected:
  GlmGoldenPromptTest() : GoldenPromptTest(model::TinyGlm()) {}
};

TEST_F(GlmGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class Qwen3MixedGoldenPromptTest : public GoldenPromptTest {
 protected:
  Qwen3MixedGoldenPromptTest() : GoldenPromptTest(model::TinyQwen3Mixed()) {}
};

TEST_F(Qwen3MixedGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class Qwen2GoldenPromptTest : public GoldenPromptTest {
 protected:
  Qwen2GoldenPromptTest() : GoldenPromptTest(model::TinyQwen2()) {}
};

TEST_F(Qwen2GoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class DbrxGoldenPromptTest : public GoldenPromptTest {
 protected:
  DbrxGoldenPromptTest() : GoldenPromptTest(model::TinyDbrx()) {}
};

TEST_F(DbrxGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class LlamaGoldenPromptTest : public GoldenPromptTest {
 protected:
  LlamaGoldenPromptTest() : GoldenPromptTest(model::TinyLlama()) {}
};

TEST_F(LlamaGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

class GptOssGoldenPromptTest : public GoldenPromptTest {
 protected:
  GptOssGoldenPromptTest() : GoldenPromptTest(model::TinyGptOss()) {}
};

TEST_F(GptOssGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

// What is cached begins before every window, and within it.
TEST_F(GptOssGoldenPromptTest, AfterACachedPrefix) {
  CheckFrom(CaseOf(300), 290, StreamSubject::Ring(4));
  CheckFrom(CaseOf(65), 30, StreamSubject::Ring(4));
}

class MiniMaxGoldenPromptTest : public GoldenPromptTest {
 protected:
  MiniMaxGoldenPromptTest() : GoldenPromptTest(model::TinyMiniMax()) {}
};

TEST_F(MiniMaxGoldenPromptTest, LogitsKvAndGreedyTokens) { CheckCases(); }

// Inputs of FP8 weights in FP8. The CPU has the same codes where it has the same inputs in BF16, and in the first
// layers that is nearly everywhere. Behind them a code that differs makes others differ. What depends on all layers is
// compared where no choice of experts is close: StreamedShapesTest.InputsInFp8.
class Fp8InputsTest : public GoldenPromptTest {
 protected:
  void SetUp() override {
    if (!cuda::HasFp8Mma()) GTEST_SKIP() << cuda::DeviceName() << " has no products of FP8";
    ASSERT_TRUE(model_.ok()) << model_.status();
    subject_ =
        std::make_unique<StreamSubject>(*model_->owned.segment, Int8Activations::kPublished, /*fp8_inputs=*/true);
  }
};

TEST_F(Fp8InputsTest, KvOfTheFirstLayersIsTheCpus) {
  const model::GoldenCase& golden = CaseOf(65);
  const model::TestSequence expected(spec(), 65), in_bf16(spec(), 65);
  model::RunPrompt(subject_->engine(), expected, golden.prompt, 128, MlaForm::kUnabsorbed);
  StreamSubject(*model_->owned.segment).Stream(in_bf16, golden.prompt, 0, StreamSubject::Ring(4));
  const auto layer_of = [&](const model::TestSequence& sequence, int64_t layer) {
    const std::vector<uint16_t> kv = sequence.Contents(65);
    const auto size = std::ssize(kv) / spec().num_layers;
    std::vector<float> numbers;
    for (int64_t i = layer * size; i < (layer + 1) * size; ++i) numbers.push_back(FromBf16(kv[static_cast<size_t>(i)]));
    return numbers;
  };
  for (const MemoryLimits& limits : {StreamSubject::Ring(4), subject_->LimitsForPassesOf(14)}) {
    const model::TestSequence sequence(spec(), 65);
    subject_->Stream(sequence, golden.prompt, 0, limits);
    for (const int64_t layer : {0, 1}) ExpectNear(spec(), layer_of(sequence, layer), layer_of(expected, layer));
    EXPECT_NE(layer_of(sequence, 1), layer_of(in_bf16, 1)) << "no input was rounded";
  }
  EXPECT_EQ(subject_->report().counters.passes, 5);
}

TEST_F(GoldenPromptTest, EveryRingLengthGivesTheSameBits) {
  const std::span<const int32_t> tokens = std::span(CaseOf(65).prompt).first(9);
  std::vector<uint16_t> kv;
  model::Logits logits;
  for (const int64_t slots : {2, 5, 8}) {
    const model::TestSequence sequence(spec(), std::ssize(tokens));
    const model::Logits got = subject_->Stream(sequence, tokens, 0, StreamSubject::Ring(slots));
    if (logits.empty()) {
      logits = got;
      kv = sequence.Contents(std::ssize(tokens));
    }
    EXPECT_TRUE(model::SameBits(got, logits)) << slots << " slots";
    EXPECT_EQ(sequence.Contents(std::ssize(tokens)), kv) << slots << " slots";
  }
  RecordProperty("bits", model::BitsOf(logits));
}

// A pass reads earlier tokens from the pages: the beginning of a KV block, and whole parts.
TEST_F(GoldenPromptTest, AfterACachedPrefix) {
  CheckFrom(CaseOf(65), 64, StreamSubject::Ring(4));
  CheckFrom(CaseOf(64), 55, StreamSubject::Ring(4));
  CheckFrom(CaseOf(300), 290, StreamSubject::Ring(4));
}

TEST_F(GoldenPromptTest, InPasses) {
  CheckFrom(CaseOf(65), 0, subject_->LimitsForPassesOf(14));
  EXPECT_EQ(subject_->report().counters.passes, 5);
  EXPECT_EQ(subject_->report().counters.max_ring_occupancy, 2);
}

// Shapes that the golden model lacks. All tokens choose the same experts: no choice is close.
void CheckShapes(const weights::ModelSpec& spec, bool fp8, int64_t count, std::optional<DType> type = {},
                 Int8Activations setting = Int8Activations::kPublished, bool fp8_inputs = false) {
  const SyntheticSegment model =
      MakeSyntheticSegment({.spec = spec, .fp8 = fp8, .type = type, .decisive_biases = true});
  StreamSubject subject(*model.segment, setting, fp8_inputs);
  const bool coded = type == DType::kI8 && setting != Int8Activations::kBf16;
  const std::vector<int32_t> tokens = model::RandomTokens(count, spec.token_count, 3);
  const model::TestSequence sequence(spec, count), expected(spec, count);
  const model::Logits logits = subject.Stream(sequence, tokens, 0, StreamSubject::Ring(3));
  ExpectNear(spec, logits, model::RunPrompt(subject.engine(), expected, tokens, 128, MlaForm::kUnabsorbed), coded);
  ExpectNear(spec, sequence.Contents(count), expected.Contents(count), coded);
}

weights::ModelSpec OddSpec() {
  weights::ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  return spec;
}

TEST(StreamedShapesTest, OddSizes) {
  for (const bool fp8 : {true, false}) CheckShapes(OddSpec(), fp8, 15);
  CheckShapes(OddSpec(), true, 40);
}

// A row's bits do not depend on the rows that are computed with it. With memory for one tile, the outputs of all
// experts are added at once.
TEST(StreamedShapesTest, EveryTileGivesTheSameBits) {
  constexpr int64_t kCount = 40;
  weights::ModelSpec grouped = SmallGroupedSpec();
  grouped.qk_rope_head_dim = grouped.v_head_dim = 128;
  grouped.num_layers = 2;
  for (const auto& [spec, fp8_inputs] : {std::pair(OddSpec(), cuda::HasFp8Mma()), std::pair(grouped, false)}) {
    const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
    const std::vector<int32_t> tokens = model::RandomTokens(kCount, spec.token_count, 3);
    const auto run = [&](int64_t tile_rows, int64_t spare_bytes) {
      StreamSubject subject(*model.segment, Int8Activations::kPublished, fp8_inputs, tile_rows);
      MemoryLimits limits = subject.LimitsForPassesOf(kCount);
      limits.ring_slots = 2;
      limits.device_bytes += spare_bytes;
      const model::TestSequence sequence(spec, kCount);
      const model::Logits logits = subject.Stream(sequence, tokens, 0, limits);
      return std::pair(logits, sequence.Contents(kCount));
    };
    const auto [logits, kv] = run(engine::kCudaTileRows, 0);
    ASSERT_FALSE(logits.empty());
    for (const auto& [tile_rows, spare_bytes] : {std::pair<int64_t, int64_t>(16, 0), {16, 64 << 20}}) {
      const auto [of_tiles, kv_of_tiles] = run(tile_rows, spare_bytes);
      EXPECT_TRUE(model::SameBits(of_tiles, logits)) << tile_rows << " rows a tile, " << spare_bytes << " spare bytes";
      EXPECT_EQ(kv_of_tiles, kv) << tile_rows << " rows a tile, " << spare_bytes << " spare bytes";
    }
  }
}

// Two parts before the pass, two groups of heads. Without memory for all of a layer's earlier tokens, each part is
// copied for each group.
TEST(StreamedShapesTest, EarlierTokensTogetherOrInParts) {
  constexpr int64_t kEarlier = 200, kNew = 10;
  weights::ModelSpec spec = OddSpec();
  spec.num_heads = engine::kCudaHeads + 3;
  spec.num_layers = 2;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .decisive_biases = true});
  StreamSubject subject(*model.segment);
  const std::vector<int32_t> tokens = model::RandomTokens(kEarlier + kNew, spec.token_count, 3);
  const model::TestSequence expected(spec, kEarlier + kNew);
  const model::Logits expected_logits = model::RunPrompt(subject.engine(), expected, tokens, 128, MlaForm::kUnabsorbed);
  model::Logits first;
  for (const int64_t spare_bytes : {0, 64 << 20}) {
    MemoryLimits limits = subject.LimitsForPassesOf(kNew);
    limits.device_bytes += spare_bytes;
    const model::TestSequence sequence(spec, kEarlier + kNew);
    model::RunPrompt(subject.engine(), sequence, std::span(tokens).first(kEarlier), 128, MlaForm::kUnabsorbed);
    const model::Logits logits = subject.Stream(sequence, tokens, kEarlier, limits);
    ExpectNear(spec, logits, expected_logits);
    ExpectNear(spec, sequence.Contents(kEarlier + kNew), expected.Contents(kEarlier + kNew));
    if (first.empty()) first = logits;
    EXPECT_TRUE(model::SameBits(logits, first)) << spare_bytes << " spare bytes";
  }
}

TEST(StreamedShapesTest, NoQueryRankNoSharedExpertManyHeads) {
  weights::ModelSpec spec = OddSpec();
  spec.q_lora_rank = 0;
  spec.num_shared_experts = 0;
  spec.num_heads = engine::kCudaHeads + 3;
  spec.num_layers = 2;
  CheckShapes(spec, true, 15);
}

TEST(StreamedShapesTest, InputsInFp8) {
  constexpr auto kPublished = Int8Activations::kPublished;
  if (!cuda::HasFp8Mma()) GTEST_SKIP() << cuda::DeviceName() << " has no products of FP8";
  CheckShapes(OddSpec(), true, 40, {}, kPublished, /*fp8_inputs=*/true);
  CheckShapes(OddSpec(), /*fp8=*/false, 15, {}, kPublished, /*fp8_inputs=*/true);  // concerns no weights
  weights::ModelSpec grouped = SmallGroupedSpec();
  grouped.qk_rope_head_dim = grouped.v_head_dim = 128;
  grouped.num_experts = grouped.experts_per_token;  // without biases no other choice is certain
  grouped.num_layers = 2;
  CheckShapes(grouped, true, 15, {}, kPublished, /*fp8_inputs=*/true);
}

// Some kv heads at a time, and all of them; with head norms and without, with biases and without.
TEST(StreamedShapesTest, GroupedQueries) {
  for (const auto& [heads, kv_heads, no_norms, biases] :
       {std::tuple(4, 2, 0, 0), std::tuple(20, 5, 0, 1), std::tuple(4, 2, 1, 0)}) {
    weights::ModelSpec spec = SmallGroupedSpec();
    spec.num_heads = heads;
    spec.num_kv_heads = kv_heads;
    spec.heads_without_norms = no_norms;
    spec.qkv_biases = biases;
    spec.qk_rope_head_dim = spec.v_head_dim = 128;
    spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
    spec.num_layers = 2;
    CheckShapes(spec, true, heads == 4 ? 70 : 15);
  }
}

TEST(StreamedShapesTest, LayerNormsAndAClamp) {
  weights::ModelSpec spec = SmallGroupedSpec();
  spec.qk_rope_head_dim = spec.v_head_dim = 128;
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  spec.heads_without_norms = spec.layer_norms = 1;
  spec.clip_qkv = 0.7;
  CheckShapes(spec, true, 15);
}

TEST(StreamedShapesTest, DenseLayersBetweenOthers) {
  weights::ModelSpec spec = SmallMixedSpec();
  spec.qk_rope_head_dim = 64;
  CheckShapes(spec, true, 15);
}

TEST(StreamedShapesTest, SharedExpertBehindAGate) {
  weights::ModelSpec spec = SmallGatedSpec();
  spec.qk_rope_head_dim = 64;
  CheckShapes(spec, true, 15);
}

TEST(StreamedShapesTest, FormsOfGroupedQueries) {
  for (GroupedForm form : GroupedForms(128)) {
    SCOPED_TRACE(form.name);
    form.spec.num_heads = engine::kCudaHeads + 4;
    CheckShapes(form.spec, true, 40);
  }
  CheckShapes(GroupedForms(64).back().spec, true, 70);
}

TEST(StreamedShapesTest, OneDenseLayer) {
  weights::ModelSpec spec = OddSpec();
  spec.num_layers = spec.first_dense_layers = 1;
  CheckShapes(spec, true, 15);
}

TEST(StreamedShapesTest, HeadsThatTheKernelsDoNotHave) {
  EXPECT_TRUE(engine::CheckPrefillSupported(OddSpec()).ok());
  const absl::Status status = engine::CheckPrefillSupported(SmallSpec());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("128 + 32"), std::string_view::npos) << status;
  weights::ModelSpec spec = SmallGroupedSpec();
  EXPECT_TRUE(engine::CheckPrefillSupported(spec).ok());
  spec.qk_rope_head_dim = spec.v_head_dim = 192;
  const absl::Status grouped = engine::CheckPrefillSupported(spec);
  EXPECT_EQ(grouped.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(grouped.message().find("not of 192"), std::string_view::npos) << grouped;
}

TEST(StreamedShapesTest, TypesOfWeights) {
  const weights::ModelSpec spec = SmallGroupedSpec();
  for (auto type = static_cast<uint32_t>(DType::kBF16); type <= static_cast<uint32_t>(kLastDType); ++type) {
    const auto dtype = static_cast<DType>(type);
    EXPECT_TRUE(engine::CheckWeightsSupported(spec, roofline::ShapesOnly(spec, dtype)).ok()) << DTypeName(dtype);
  }
  weights::ModelSpec narrow = spec;
  narrow.moe_intermediate_size = 8;
  const absl::Status few = engine::CheckWeightsSupported(narrow, roofline::ShapesOnly(narrow, DType::kI8));
  EXPECT_EQ(few.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(few.message().find("down_proj.weight' has 8; use --device host"), std::string_view::npos) << few;
  const auto mixed = [&](const char* name) {
    return engine::CheckWeightsSupported(spec, roofline::ShapesOnly(spec, [&](const model::ModelTensor& tensor) {
                                           return tensor.name == name ? DType::kQ6K : DType::kQ4K;
                                         }));
  };
  EXPECT_TRUE(mixed("lm_head.weight").ok());
  const absl::Status of_expert = mixed("model.layers.2.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(of_expert.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(of_expert.message().find("layer 2 have different types, first in expert 1"), std::string_view::npos)
      << of_expert;
  const weights::ModelSpec latents = SmallSpec();
  for (const DType dtype : {DType::kQ8_0, DType::kI8}) {
    const absl::Status status = engine::CheckWeightsSupported(latents, roofline::ShapesOnly(latents, dtype));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find("kv_b_proj"), std::string_view::npos) << status;
  }
}

// Linear layers, embedding and head in F16 or in a format of blocks.
TEST(StreamedShapesTest, FormatsOfBlocks) {
  weights::ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.hidden_size = spec.moe_intermediate_size = 256;
  spec.num_heads = 4;
  spec.num_layers = 2;
  std::vector<DType> types(std::begin(::moestro::testing::kBlockFormats), std::end(::moestro::testing::kBlockFormats));
  types.push_back(DType::kF16);
  for (const DType type : types) {
    SCOPED_TRACE(DTypeName(type));
    CheckShapes(spec, false, 15, type);
  }
}

// With inputs in codes, and in BF16.
TEST(StreamedShapesTest, Int8) {
  weights::ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  weights::ModelSpec latents = OddSpec();
  for (const Int8Activations setting : {Int8Activations::kPublished, Int8Activations::kBf16}) {
    CheckShapes(spec, false, 40, DType::kI8, setting);
    CheckShapes(latents, false, 15, DType::kI8, setting);
  }
  latents.q_lora_rank = 0;
  CheckShapes(latents, false, 15, DType::kI8);
}

// Latents' weights are in F16 or BF16 then.
TEST(StreamedShapesTest, FormatsOfBlocksWithLatents) {
  weights::ModelSpec spec = OddSpec();
  spec.q_lora_rank = spec.moe_intermediate_size = 64;
  spec.intermediate_size = 96;
  CheckShapes(spec, false, 15, DType::kQ8_0);
}

TEST(StreamedShapesTest, PublishedModelsWithLatents) {
  for (const char* name : {"deepseek-v3", "deepseek-v2", "deepseek-v2-lite", "kimi-k2"}) {
    const weights::ModelSpec spec = checkpoint::PublishedModel(name);
    EXPECT_TRUE(engine::CheckPrefillSupported(spec).ok()) << name;
    EXPECT_TRUE(engine::CheckRanksSupported(spec).ok()) << name;
    EXPECT_TRUE(engine::CheckDecodeSupported(spec).ok()) << name;
  }
}

TEST(StreamedShapesTest, TheFormThatTheKernelsDoNotHave) {
  EXPECT_TRUE(engine::CheckUnabsorbed(OddSpec(), MlaForm::kUnabsorbed).ok());
  EXPECT_TRUE(engine::CheckUnabsorbed(SmallGroupedSpec(), MlaForm::kAbsorbed).ok()) << "grouped queries have one form";
  const SyntheticSegment model = MakeSyntheticSegment({.spec = OddSpec()});
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const auto device = device::OpenCudaDevice({.memory_bytes = kDeviceBytes}).value();
  engine::CudaPrefill compute(*device, model.segment->spec(), weights);
  const absl::Status status = compute.Begin({.rows = {}, .pages = {}, .form = MlaForm::kAbsorbed});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "the CUDA kernels compute prompts with un-absorbed MLA, not with absorbed");
}

TEST(StreamedShapesTest, NanInAnEmbeddingIsAnError) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = OddSpec(), .nan_token = 7});
  StreamSubject subject(*model.segment);
  const auto device = device::OpenCudaDevice({.memory_bytes = kDeviceBytes}).value();
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  engine::CudaPrefill compute(*device, subject.spec(), weights);
  StreamPrefill prefill(*device, subject.spec(), weights, compute, StreamSubject::Ring(2));
  const model::TestSequence sequence(subject.spec(), 3);
  const kv::KvPages pages[] = {sequence.pages()};
  const int32_t tokens[] = {1, 7, 2};
  const absl::Status status = prefill.Run(model::MakeRows(tokens, 0), pages, MlaForm::kUnabsorbed,
                                          model::NeverInterrupted, {}, [](int64_t, std::span<const float>) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

}  // namespace
}  // namespace moestro::prefill
