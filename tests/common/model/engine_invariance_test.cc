// The bits of a token's logits and KV depend only on the tokens before it and on the form of MLA.
#include <tuple>

#include "common/model/engine.h"
#include "common/model/head.h"
#include "common/model/linear.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"
#include "tests/support/typed_models.h"

namespace moestro::model {
namespace {

constexpr int64_t kTokens = 130;    // two page boundaries
constexpr int64_t kFewTokens = 70;  // one

enum class AttentionCase { kAbsorbed, kUnabsorbed, kGrouped, kWindowed };

const SyntheticSegment& LatentModel() {
  static const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallSpec()});
  return model;
}
const SyntheticSegment& GroupedModel() {
  static const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallGroupedSpec()});
  return model;
}

// With sinks, biases and clamped experts.
const SyntheticSegment& WindowedModel() {
  static const SyntheticSegment model = MakeSyntheticSegment({.spec = GroupedForms().back().spec});
  return model;
}

// Three sequences at different positions share every pass; the results must equal those of each alone.
void ExpectBatchesAreAsEachAlone(Engine& engine, const weights::ModelSpec& spec, MlaForm form) {
  const int64_t lengths[] = {100, 37, 66};
  const int64_t chunks[] = {20, 1, 33};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Logits> expected;
  std::vector<TestSequence> sequences;
  std::vector<kv::KvPages> pages;
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(RandomTokens(lengths[i], spec.token_count, 100 + i));
    const TestSequence alone(spec, lengths[i]);
    expected.push_back(RunPrompt(engine, alone, prompts[i], lengths[i], form));
    sequences.emplace_back(spec, lengths[i]);
    pages.push_back(sequences[i].pages());
  }
  std::vector<Logits> actual(3);
  for (int step = 0; step < 37; ++step) {
    std::vector<EngineRow> rows;
    for (int32_t i = 2; i >= 0; --i) {
      const int64_t begin = step * chunks[i];
      const int64_t end = std::min(begin + chunks[i], lengths[i]);
      if (begin >= end) continue;
      const auto part = std::span(prompts[i]).subspan(begin, end - begin);
      for (const EngineRow& row : MakeRows(part, begin, i)) rows.push_back(row);
    }
    const Logits logits = Forward(engine, rows, pages, form);
    ASSERT_EQ(logits.size(), rows.size());
    for (size_t row = 0; row < rows.size(); ++row) actual[rows[row].sequence].push_back(logits[row]);
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(actual[i], expected[i])) << i;
}

class EngineInvariance : public ::testing::TestWithParam<AttentionCase> {
 protected:
  MlaForm form() const { return GetParam() == AttentionCase::kAbsorbed ? MlaForm::kAbsorbed : MlaForm::kUnabsorbed; }
  const SyntheticSegment& Model() const {
    if (GetParam() == AttentionCase::kWindowed) return WindowedModel();
    return GetParam() == AttentionCase::kGrouped ? GroupedModel() : LatentModel();
  }
  const weights::ModelSpec& spec() const { return Model().segment->spec(); }
  std::unique_ptr<Engine> MakeEngine(WorkerPool& pool, int64_t max_rows = kTokens) const {
    auto engine = Engine::Create(*Model().segment, TestKernels(), pool, {.max_rows = max_rows});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  const std::vector<int32_t> tokens_ = RandomTokens(kTokens, spec().token_count, 7);
};

TEST_P(EngineInvariance, ChunkSize) {
  WorkerPool pool(1);
  const auto engine = MakeEngine(pool);
  const TestSequence whole(spec(), kTokens);
  const Logits expected = RunPrompt(*engine, whole, tokens_, kTokens, form());
  ASSERT_EQ(expected.size(), static_cast<size_t>(kTokens));
  for (const int64_t chunk : {1, 7, 64}) {
    const TestSequence sequence(spec(), kTokens);
    EXPECT_TRUE(SameBits(RunPrompt(*engine, sequence, tokens_, chunk, form()), expected)) << chunk;
    EXPECT_EQ(sequence.Contents(kTokens), whole.Contents(kTokens)) << chunk;
  }
}

// Roles choose the rows of a pass by measured times.
TEST_P(EngineInvariance, RowsOfALongPass) {
  constexpr int64_t kLong = 1000;
  const std::vector<int32_t> tokens = RandomTokens(kLong, spec().token_count, 9);
  WorkerPool pool(2);
  const TestSequence whole(spec(), kLong);
  const Logits expected = RunPrompt(*MakeEngine(pool, kLong), whole, tokens, kLong, form());
  for (const int64_t chunk : {256, 576}) {
    const TestSequence sequence(spec(), kLong);
    EXPECT_TRUE(SameBits(RunPrompt(*MakeEngine(pool, chunk), sequence, tokens, chunk, form()), expected)) << chunk;
    EXPECT_EQ(sequence.Contents(kLong), whole.Contents(kLong)) << chunk;
  }
}

TEST_P(EngineInvariance, ThreadsAndDomains) {
  WorkerPool one(1);
  const TestSequence sequence(spec(), kTokens);
  const Logits expected = RunPrompt(*MakeEngine(one), sequence, tokens_, kTokens, form());
  for (const auto& [threads, domains] :
       {std::pair(2, 1), std::pair(5, 1), std::pair(2, 2), std::pair(5, 2), std::pair(3, 3)}) {
    for (const int64_t chunk : {7, 130}) {
      WorkerPool pool({.threads = threads, .domains = domains});
      const TestSequence other(spec(), kTokens);
      EXPECT_TRUE(SameBits(RunPrompt(*MakeEngine(pool), other, tokens_, chunk, form()), expected))
          << threads << " threads, " << domains << " domains, chunks of " << chunk;
      EXPECT_EQ(other.Contents(kTokens), sequence.Contents(kTokens));
    }
  }
}

TEST_P(EngineInvariance, Batching) {
  WorkerPool pool(2);
  ExpectBatchesAreAsEachAlone(*MakeEngine(pool), spec(), form());
}

TEST_P(EngineInvariance, RowsWithoutLogits) {
  WorkerPool pool(1);
  const auto engine = MakeEngine(pool);
  const TestSequence sequence(spec(), kTokens);
  const Logits expected = RunPrompt(*engine, sequence, tokens_, kTokens, form());
  std::vector<EngineRow> rows = MakeRows(tokens_, 0);
  for (EngineRow& row : rows) row.needs_logits = row.position % 2 == 1;
  const kv::KvPages pages[] = {sequence.pages()};
  std::vector<int64_t> seen;
  const absl::Status status =
      engine->Forward({rows, pages, form()}, NeverInterrupted, [&](int64_t row, std::span<const float> logits) {
        seen.push_back(row);
        EXPECT_TRUE(SameBits({{logits.begin(), logits.end()}}, {expected[row]})) << row;
      });
  EXPECT_TRUE(status.ok()) << status;
  static_assert(kTokens / 2 > kLogitRows, "more than are computed together");
  ASSERT_EQ(std::ssize(seen), kTokens / 2);
  for (int64_t i = 0; i < std::ssize(seen); ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], 2 * i + 1);
}

// With many heads and few rows, one task of absorbed attention takes several heads; the number depends on the threads.
TEST_P(EngineInvariance, ManyHeads) {
  weights::ModelSpec spec = this->spec();
  spec.num_layers = 1;
  spec.num_heads = spec.num_kv_heads > 0 ? 14 : 13;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
  Logits expected;
  for (const auto& [threads, chunk] : {std::pair(1, 64), std::pair(1, 1), std::pair(2, 1), std::pair(1, 5)}) {
    WorkerPool pool(threads);
    const auto engine = Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = 64});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const TestSequence sequence(spec, 70);
    const Logits logits = RunPrompt(**engine, sequence, std::span(tokens_).first(70), chunk, form());
    if (expected.empty()) expected = logits;
    EXPECT_TRUE(SameBits(logits, expected)) << threads << " threads, chunks of " << chunk;
  }
}

// In wide layers a task takes several row groups (TaskGroups); the last one takes fewer.
TEST_P(EngineInvariance, SeveralRowGroupsInATask) {
  constexpr int64_t kManyTokens = 66;
  weights::ModelSpec spec = this->spec();
  spec.num_layers = 2;  // MLA: a dense one and one with experts
  spec.hidden_size = spec.intermediate_size = 1100;
  spec.moe_intermediate_size = 300;
  ASSERT_EQ(TaskGroups(RowGroups({.rows = spec.hidden_size}), 1), 4);
  ASSERT_EQ(TaskGroups(RowGroups({.rows = spec.hidden_size}), 2), 2);
  ASSERT_EQ(TaskGroups(RowGroups({.rows = spec.hidden_size}), 5), 1);
  const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
  Logits expected;
  for (const auto& [threads, domains, chunk] :
       {std::tuple(5, 1, kManyTokens), std::tuple(1, 1, kManyTokens), std::tuple(2, 1, kManyTokens),
        std::tuple(2, 2, kManyTokens), std::tuple(1, 1, int64_t{1}), std::tuple(2, 1, int64_t{2})}) {
    WorkerPool pool({.threads = threads, .domains = domains});
    const auto engine = Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = kManyTokens});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const TestSequence sequence(spec, kManyTokens);
    const Logits logits = RunPrompt(**engine, sequence, std::span(tokens_).first(kManyTokens), chunk, form());
    if (expected.empty()) expected = logits;
    EXPECT_TRUE(SameBits(logits, expected)) << threads << " threads, " << domains << " domains, chunks of " << chunk;
  }
}

class TypedWeights : public TypedRunTest, public ::testing::Test {};

TEST_P(TypedWeights, BatchesChunksThreadsAndDomains) {
  const SyntheticSegment model = MakeSyntheticSegment(GetParam().options);
  const weights::ModelSpec& spec = model.segment->spec();
  const std::vector<int32_t> tokens = RandomTokens(kFewTokens, spec.token_count, 7);
  const auto engine_on = [&](WorkerPool& pool) {
    return Engine::Create(*model.segment, TestKernels(), pool, {.max_rows = kTokens}).value();
  };
  for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kUnabsorbed}) {
    if (form == MlaForm::kUnabsorbed && spec.num_kv_heads > 0) continue;  // there are no forms
    WorkerPool two(2);
    ExpectBatchesAreAsEachAlone(*engine_on(two), spec, form);
    WorkerPool one(1);
    const TestSequence whole(spec, kFewTokens);
    const Logits expected = RunPrompt(*engine_on(one), whole, tokens, kFewTokens, form);
    for (const auto& [threads, domains, chunk] : {std::tuple(1, 1, int64_t{1}), std::tuple(2, 1, int64_t{7}),
                                                  std::tuple(5, 2, int64_t{64}), std::tuple(3, 3, kFewTokens)}) {
      WorkerPool pool({.threads = threads, .domains = domains});
      const TestSequence sequence(spec, kFewTokens);
      EXPECT_TRUE(SameBits(RunPrompt(*engine_on(pool), sequence, tokens, chunk, form), expected))
          << threads << " threads, " << domains << " domains, chunks of " << chunk;
      EXPECT_EQ(sequence.Contents(kFewTokens), whole.Contents(kFewTokens));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TypedWeights, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

std::string Name(const ::testing::TestParamInfo<AttentionCase>& info) {
  const char* const names[] = {"absorbed", "unabsorbed", "grouped", "windowed"};
  return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Attention, EngineInvariance,
                         ::testing::Values(AttentionCase::kAbsorbed, AttentionCase::kUnabsorbed,
                                           AttentionCase::kGrouped, AttentionCase::kWindowed),
                         Name);

}  // namespace
}  // namespace moestro::model
