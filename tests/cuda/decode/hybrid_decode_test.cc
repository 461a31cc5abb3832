// Decode steps with the CUDA kernels and the CPU workers, on a GPU or the model of one, against the engine on the CPU
// and another implementation's tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "common/model/sampler.h"
#include "tests/common/model/golden_model.h"
#include "tests/cuda/decode/hybrid_subject.h"
#include "tests/cuda/device.h"
#include "tests/cuda/near.h"
#include "tests/support/faulty_device.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::decode {

using weights::ModelSpec;

namespace {

constexpr int64_t kMaxRows = 32;
constexpr int32_t kNanToken = 7;

// The engine on the CPU computes the prompt, then hybrid steps decode it token by token. Logits and KV must match the
// CPU's, and the tokens another implementation's.
void CheckGolden(HybridSubject& subject, const model::GoldenCase& golden, int64_t steps) {
  SCOPED_TRACE(::testing::Message() << golden.prompt.size() << " tokens");
  const ModelSpec& spec = subject.spec();
  const int64_t last = std::ssize(golden.prompt) - 1, end = last + steps;
  const model::TestSequence sequence(spec, end + 1), expected(spec, end + 1);
  for (const model::TestSequence* one : {&sequence, &expected}) {
    if (last > 0) {
      model::RunPrompt(subject.engine(), *one, std::span(golden.prompt).first(static_cast<size_t>(last)), 128,
                       model::MlaForm::kAbsorbed);
    }
  }
  const kv::KvPages pages[] = {sequence.pages()}, expected_pages[] = {expected.pages()};
  int32_t token[] = {golden.prompt.back()};
  for (int64_t position = last; position < end; ++position) {
    const std::vector<model::EngineRow> rows = model::MakeRows(token, position);
    model::Logits logits;
    const absl::Status status = subject.Step(rows, pages, 1, &logits);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(logits.size(), 1u);
    ExpectNear(spec, logits, model::Forward(subject.engine(), rows, expected_pages, model::MlaForm::kAbsorbed));
    token[0] = golden.greedy[static_cast<size_t>(position - last)];
    ASSERT_EQ(model::ComputeLogprobs(logits[0], token[0], 1).top[0].id, token[0]) << "greedy token " << position - last;
  }
  ExpectNear(spec, sequence.Contents(end), expected.Contents(end));
}

TEST(HybridDecodeGoldenTest, GreedyTokensLogitsAndKv) {
  for (const absl::StatusOr<model::TinyModel>* model :
       {&model::Tiny(), &model::TinyMixtral(), &model::TinyDeepSeekV2(), &model::TinyDeepSeekV2Lite(),
        &model::TinyKimiK2(), &model::TinyGlm(), &model::TinyGptOss(), &model::TinyMiniMax(), &model::TinyQwen3Mixed(),
        &model::TinyQwen2(), &model::TinyDbrx()}) {
    ASSERT_TRUE(model->ok()) << model->status();
    HybridSubject subject(*(*model)->owned.segment, kMaxRows, /*kv_pages=*/16);
    for (const model::GoldenCase& golden : (*model)->cases) {
      if (cuda::DeviceName() != "emulation") {
        CheckGolden(subject, golden, std::ssize(golden.greedy));
      } else if (golden.prompt.size() == 2 || golden.prompt.size() == 64) {  // a step takes the model of a GPU seconds
        CheckGolden(subject, golden, 2);
      }
    }
  }
}

ModelSpec OddSpec() {
  ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  return spec;
}

// Sequences of different lengths, with prompts computed by the engine, and their next tokens.
class Conversation {
 public:
  Conversation(HybridSubject& subject, int64_t sequences)
      : pool(subject.spec(), sequences, kTokens), expected_pool_(subject.spec(), sequences, kTokens) {
    for (int32_t i = 0; i < sequences; ++i) {
      std::vector<int32_t> prompt = model::RandomTokens(kLengths[i], subject.spec().token_count - 20, 50 + i);
      for (int32_t& token : prompt) token += 20;  // avoids kNanToken
      pages.push_back(pool.pages(i));
      expected_pages.push_back(expected_pool_.pages(i));
      for (const auto& all : {pages, expected_pages}) {
        model::Forward(subject.engine(), model::MakeRows(prompt, 0, i), all, model::MlaForm::kAbsorbed);
      }
    }
  }
  // One row of each sequence, and `chunk` rows of the last one.
  std::vector<model::EngineRow> Step(int64_t chunk = 1) const {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < std::ssize(pages); ++i) {
      for (int32_t j = 0; j < (i + 1 == std::ssize(pages) ? chunk : 1); ++j) {
        rows.push_back({.token = 30 + i + j,
                        .position = static_cast<int32_t>(kLengths[i]) + j,
                        .sequence = i,
                        .needs_logits = true});
      }
    }
    return rows;
  }

  static constexpr int64_t kLengths[] = {3, 63, 64, 20, 100, 1, 62, 31};
  static constexpr int64_t kTokens = 128;
  const TestPool pool;
  std::vector<kv::KvPages> pages, expected_pages;

 private:
  const TestPool expected_pool_;
};

// Close to the engine; the same bits and KV for every division into micro-batches.
void CheckCuts(HybridSubject& subject, const Conversation& conversation, const std::vector<model::EngineRow>& rows,
               const std::vector<size_t>& cuts, bool coded = false) {
  const model::Logits expected =
      model::Forward(subject.engine(), rows, conversation.expected_pages, model::MlaForm::kAbsorbed);
  model::Logits first;
  std::vector<uint16_t> first_kv;
  for (const size_t cut : cuts) {
    SCOPED_TRACE(::testing::Message() << conversation.pages.size() << " sequences, " << rows.size()
                                      << " rows, cut after " << cut);
    TestPool::Forget(rows, conversation.pages);
    model::Logits logits;
    const absl::Status status = subject.Step(rows, conversation.pages, cut, &logits);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<uint16_t> kv = TestPool::Contents(rows, conversation.pages);
    if (first.empty()) {
      ExpectNear(subject.spec(), logits, expected, coded);
      ExpectNear(subject.spec(), kv, TestPool::Contents(rows, conversation.expected_pages), coded);
      first = logits;
      first_kv = kv;
    }
    EXPECT_TRUE(model::SameBits(logits, first));
    EXPECT_EQ(kv, first_kv);
  }
}

class HybridDecodeTest : public ::testing::Test {
 protected:
  const SyntheticSegment model_ =
      MakeSyntheticSegment({.spec = OddSpec(), .decisive_biases = true, .nan_token = kNanToken});
};

TEST_F(HybridDecodeTest, EveryBatchAndCut) {
  HybridSubject subject(*model_.segment, kMaxRows, 16);
  for (const int64_t sequences : {1, 3, 8}) {
    const Conversation conversation(subject, sequences);
    std::vector<size_t> cuts = {static_cast<size_t>(sequences)};
    if (sequences > 1) cuts.push_back(1);
    if (sequences > 3) cuts.push_back(3);
    CheckCuts(subject, conversation, conversation.Step(), cuts);
  }
}

TEST_F(HybridDecodeTest, ChunksOfPrompts) {
  HybridSubject subject(*model_.segment, kMaxRows, 16);
  const Conversation conversation(subject, 3);
  CheckCuts(subject, conversation, conversation.Step(/*chunk=*/19), {3, 1});
}

TEST_F(HybridDecodeTest, OtherShapes) {
  ModelSpec spec = OddSpec();
  spec.q_lora_rank = 0;
  spec.num_shared_experts = 0;
  spec.num_heads = 35;
  spec.kv_lora_rank = 64;
  spec.num_layers = 2;
  for (const bool fp8 : {true, false}) {
    const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .fp8 = fp8, .decisive_biases = true});
    HybridSubject subject(*model.segment, kMaxRows, 16);
    const Conversation conversation(subject, 2);
    CheckCuts(subject, conversation, conversation.Step(2), {2});
  }
}

// Of the dense parts, which the GPU computes, and of the experts, which the CPU does.
TEST_F(HybridDecodeTest, FormatsOfBlocks) {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.hidden_size = spec.moe_intermediate_size = 256;
  spec.num_layers = 2;
  for (const DType type :
       {DType::kF16, DType::kQ8_0, DType::kQ4K, DType::kQ6K, DType::kI4G32, DType::kMXFP4, DType::kI4Z128}) {
    SCOPED_TRACE(DTypeName(type));
    const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .type = type});
    HybridSubject subject(*model.segment, kMaxRows, 16);
    const Conversation conversation(subject, 2);
    CheckCuts(subject, conversation, conversation.Step(2), {2, 1});
  }
}

TEST_F(HybridDecodeTest, Int8) {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  for (const ModelSpec& of : {spec, OddSpec()}) {
    const SyntheticSegment model = MakeSyntheticSegment({.spec = of, .type = DType::kI8, .decisive_biases = true});
    HybridSubject subject(*model.segment, kMaxRows, 16);
    const Conversation conversation(subject, 2);
    CheckCuts(subject, conversation, conversation.Step(2), {2, 1}, /*coded=*/true);
  }
}

TEST_F(HybridDecodeTest, LayerNormsAndAClamp) {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  spec.heads_without_norms = spec.layer_norms = 1;
  spec.clip_qkv = 0.7;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
  HybridSubject subject(*model.segment, kMaxRows, 16);
  const Conversation conversation(subject, 2);
  CheckCuts(subject, conversation, conversation.Step(2), {2, 1});
}

TEST_F(HybridDecodeTest, DenseLayersBetweenOthers) {
  ModelSpec spec = SmallMixedSpec();
  spec.qk_rope_head_dim = 64;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .decisive_biases = true});
  HybridSubject subject(*model.segment, kMaxRows, 16);
  const Conversation conversation(subject, 2);
  CheckCuts(subject, conversation, conversation.Step(2), {2, 1});
}

TEST_F(HybridDecodeTest, SharedExpertBehindAGate) {
  ModelSpec spec = SmallGatedSpec();
  spec.qk_rope_head_dim = 64;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .decisive_biases = true});
  HybridSubject subject(*model.segment, kMaxRows, 16);
  const Conversation conversation(subject, 2);
  CheckCuts(subject, conversation, conversation.Step(2), {2, 1});
}

// Grouped queries, for each kind of group, with head norms and without, with biases and without.
TEST_F(HybridDecodeTest, GroupedQueries) {
  for (const auto& [heads, kv_heads, no_norms, biases] :
       {std::tuple(4, 2, 0, 0), std::tuple(6, 1, 0, 1), std::tuple(4, 2, 1, 0)}) {
    ModelSpec spec = SmallGroupedSpec();
    spec.num_heads = heads;
    spec.num_kv_heads = kv_heads;
    spec.heads_without_norms = no_norms;
    spec.qkv_biases = biases;
    spec.num_layers = 2;
    spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
    const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
    HybridSubject subject(*model.segment, kMaxRows, 16);
    const Conversation conversation(subject, 5);  // the last one has two pages
    CheckCuts(subject, conversation, conversation.Step(), {5, 1});
    CheckCuts(subject, conversation, conversation.Step(/*chunk=*/19), {2});
  }
}

TEST_F(HybridDecodeTest, FormsOfGroupedQueries) {
  for (const GroupedForm& form : GroupedForms()) {
    SCOPED_TRACE(form.name);
    const SyntheticSegment model = MakeSyntheticSegment({.spec = form.spec});
    HybridSubject subject(*model.segment, kMaxRows, 16);
    const Conversation conversation(subject, 3);
    CheckCuts(subject, conversation, conversation.Step(/*chunk=*/19), {3});
  }
}

// A lease's pages are copied at its first step; later steps' KV is there already. Another lease's pages, even the same
// ones, are copied again.
TEST_F(HybridDecodeTest, TakesASequenceOverOnce) {
  HybridSubject subject(*model_.segment, kMaxRows, 16);
  Conversation conversation(subject, 2);
  const int64_t length = Conversation::kLengths[1];
  std::string bits;
  for (const uint64_t lease : {11, 12}) {
    conversation.pages[1] = conversation.pool.pages(1, lease);
    for (int step = 0; step < 3; ++step) {
      const int64_t before = subject.compute().copied_pages();
      const model::EngineRow row{
          .token = 40 + step, .position = static_cast<int32_t>(length) + step, .sequence = 1, .needs_logits = true};
      const model::Logits expected =
          model::Forward(subject.engine(), std::span(&row, 1), conversation.expected_pages, model::MlaForm::kAbsorbed);
      model::Logits logits;
      ASSERT_TRUE(subject.Step(std::span(&row, 1), conversation.pages, 1, &logits).ok());
      ExpectNear(subject.spec(), logits, expected);
      bits += model::BitsOf(logits);
      EXPECT_EQ(subject.compute().copied_pages() - before, step == 0 ? 1 : 0) << "lease " << lease << " step " << step;
    }
  }
  RecordProperty("bits", bits);
}

// Sequences come in parts whose pages the device has room for, and pages lose their places and come again.
TEST_F(HybridDecodeTest, LessRoomThanPagesGivesTheSameBits) {
  ModelSpec spec = OddSpec();
  spec.max_position_embeddings = 128;
  spec.num_layers = 2;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec, .decisive_biases = true});
  std::vector<model::Logits> all;
  std::vector<uint16_t> all_kv;
  int64_t all_copies = 0;
  for (const int64_t places : {0, 3}) {
    HybridSubject subject(*model.segment, kMaxRows, 16, nullptr, places);
    EXPECT_EQ(subject.compute().most_pages(), places == 0 ? 16 : places);
    Conversation conversation(subject, 5);
    for (int64_t i = 0; i < 5; ++i) conversation.pages[static_cast<size_t>(i)] = conversation.pool.pages(i, 11 + i);
    std::vector<model::EngineRow> rows = conversation.Step();
    for (size_t step = 0; step < 3; ++step) {
      SCOPED_TRACE(::testing::Message() << places << " places, step " << step);
      model::Logits logits;
      const absl::Status status = subject.Step(rows, conversation.pages, step == 1 ? 1 : 5, &logits);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(logits.size(), 5u);
      if (places == 0) {
        all.push_back(logits);
      } else {
        EXPECT_TRUE(model::SameBits(logits, all[step]));
      }
      const std::vector<uint16_t> kv = TestPool::Contents(rows, conversation.pages);
      if (step == 2 && places == 0) all_kv = kv;
      if (step == 2) {
        EXPECT_EQ(kv, all_kv);
      }
      for (model::EngineRow& row : rows) ++row.position;
    }
    if (places > 0) {
      EXPECT_GT(subject.compute().copied_pages(), all_copies);
    }
    all_copies = subject.compute().copied_pages();
  }
}

TEST_F(HybridDecodeTest, NanIsAnErrorOfThatStep) {
  HybridSubject subject(*model_.segment, kMaxRows, 16);
  const Conversation conversation(subject, 3);
  std::vector<model::EngineRow> rows = conversation.Step();
  for (const size_t row : {0, 2}) {
    rows[row].token = kNanToken;
    model::Logits logits;
    const absl::Status status = subject.Step(rows, conversation.pages, 1, &logits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_NE(status.message().find("layer 1: scores of experts are NaN"), std::string_view::npos) << status;
    rows[row].token = 30;
    EXPECT_TRUE(subject.Step(rows, conversation.pages, 3, &logits).ok());
  }
}

// A thread that spins needs no event for choices; one that does not sleeps until there is one. The bits are the same.
TEST_F(HybridDecodeTest, AStepAllocatesNothingAndWaitsForChoicesAndLogitsOnly) {
  const auto gpu = device::OpenCudaDevice({.memory_bytes = int64_t{1} << 30}).value();
  device::FaultyDevice counting(*gpu);
  HybridSubject subject(*model_.segment, kMaxRows, 16, &counting);
  const Conversation conversation(subject, 2);
  std::atomic<int> waits = 0, synchronizations = 0;
  counting.set_fault([&](const std::string& operation) -> absl::Status {
    if (operation == "allocate" || operation == "register" || operation == "stream") {
      return absl::InternalError(operation + " in a step");
    }
    if (operation == "event") ++waits;
    if (operation == "synchronize") ++synchronizations;
    return absl::OkStatus();
  });
  const int64_t moe_layers = subject.spec().num_layers - subject.spec().first_dense_layers;
  model::Logits first;
  for (const bool spins : {false, true}) {
    subject.forward().shared().spin_seconds = spins ? std::numeric_limits<double>::infinity() : 0;
    for (const size_t lanes : {1, 2}) {
      waits = synchronizations = 0;
      model::Logits logits;
      const absl::Status status = subject.Step(conversation.Step(), conversation.pages, 3 - lanes, &logits);
      EXPECT_TRUE(status.ok()) << status;
      if (spins && lanes == 1) {
        EXPECT_EQ(waits, 1) << "at the end";
      } else if (spins) {
        EXPECT_LE(waits, 2 * (moe_layers + 1)) << "a lane sleeps while it is the other one's turn";
      } else {
        EXPECT_LE(waits, static_cast<int64_t>(lanes) * (moe_layers + 1)) << "once a layer with experts, and at the end";
      }
      EXPECT_EQ(synchronizations, 1) << "for the logits";
      if (first.empty()) first = logits;
      EXPECT_TRUE(model::SameBits(logits, first));
    }
  }
}

TEST(CudaDecodeTest, SaysWhatDoesNotFit) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = OddSpec()});
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const auto gpu = device::OpenCudaDevice({.memory_bytes = 1 << 20}).value();
  const absl::Status status = engine::CudaDecode::Create(*gpu, model.segment->spec(), weights,
                                                         {.max_rows = 8, .max_sequences = 2, .kv_pages = 4})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("--kv-tokens"), std::string_view::npos) << status;
  EXPECT_EQ(gpu->memory_used(), 0);
}

TEST(CudaDecodeTest, TheFormThatTheKernelsDoNotHave) {
  EXPECT_TRUE(engine::CheckAbsorbed(SmallGroupedSpec(), model::MlaForm::kUnabsorbed).ok())
      << "grouped queries have one form";
  const SyntheticSegment model = MakeSyntheticSegment({.spec = OddSpec()});
  HybridSubject subject(*model.segment, /*max_rows=*/2, /*kv_pages=*/1);
  const TestPool pool(subject.spec(), /*sequences=*/1, /*tokens=*/1);
  const kv::KvPages pages[] = {pool.pages(0)};
  const model::EngineRow rows[] = {{.token = 1}};
  const absl::Status status = subject.forward().Forward(
      {rows, pages, model::MlaForm::kUnabsorbed}, model::NeverInterrupted, [](int64_t, std::span<const float>) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "the CUDA kernels compute steps of decode with absorbed MLA, not with un-absorbed");
}

TEST(CudaDecodeTest, ShapesThatTheKernelsDoNotHave) {
  EXPECT_TRUE(engine::CheckDecodeSupported(OddSpec()).ok());
  for (const auto change :
       {+[](ModelSpec& spec) { spec.kv_lora_rank = 520; }, +[](ModelSpec& spec) { spec.kv_lora_rank = 60; },
        +[](ModelSpec& spec) { spec.hidden_size = 164; }, +[](ModelSpec& spec) { spec.num_experts = 1024; }}) {
    ModelSpec spec = OddSpec();
    change(spec);
    EXPECT_EQ(engine::CheckDecodeSupported(spec).code(), absl::StatusCode::kUnimplemented);
  }
  ModelSpec grouped = SmallGroupedSpec();
  EXPECT_TRUE(engine::CheckDecodeSupported(grouped).ok());
  grouped.v_head_dim = grouped.qk_rope_head_dim = 320;
  EXPECT_EQ(engine::CheckDecodeSupported(grouped).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace moestro::decode
