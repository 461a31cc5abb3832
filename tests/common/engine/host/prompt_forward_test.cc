#include "common/engine/host/prompt_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/model/binding.h"
#include "common/model/head.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"
#include "tests/support/typed_models.h"

namespace moestro::engine {
namespace {

struct Cut {
  int64_t tile = 0;
  int64_t experts = 0;  // experts per run
  int64_t head = 0;     // rows of a head slice
};

struct ForwardOutcome {
  model::Logits logits;
  std::vector<uint16_t> kv;
};

class PromptForwardTest : public testing::Test {
 protected:
  explicit PromptForwardTest(const SyntheticOptions& options = {.spec = SmallSpec()})
      : model_(MakeSyntheticSegment(options)) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }

  static std::vector<model::EngineRow> Rows(std::span<const int32_t> tokens) {
    std::vector<model::EngineRow> rows = model::MakeRows(tokens, 0);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].needs_logits = i % 7 == 3 || i + 1 == rows.size();
    const auto first = rows.size() > 80 ? rows.end() - 80 : rows.begin();
    std::for_each(rows.begin(), first, [](model::EngineRow& row) { row.needs_logits = false; });
    return rows;
  }

  ForwardOutcome Expected(std::span<const int32_t> tokens, model::MlaForm form) {
    const auto engine =
        model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = std::ssize(tokens)}).value();
    const model::TestSequence sequence(spec(), std::ssize(tokens));
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<model::EngineRow> rows = Rows(tokens);
    return {model::Forward(*engine, rows, pages, form), sequence.Contents(std::ssize(tokens))};
  }

  ForwardOutcome InModules(std::span<const int32_t> tokens, model::MlaForm form, const Cut& cut) {
    const model::TestSequence sequence(spec(), std::ssize(tokens));
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<model::EngineRow> rows = Rows(tokens);
    const model::ModelWeights weights = model::BindWeights(*model_.segment).value();
    PromptForward forward(spec(), TestKernels(), pool_,
                          {.max_rows = std::max(std::ssize(tokens), cut.tile), .tile_rows = cut.tile});
    EXPECT_TRUE(forward.Begin(rows, pages, form).ok());
    forward.Embed(weights.embedding);
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      const model::LayerWeights& w = weights.layers[layer];
      forward.Attention(layer, w.attention);
      if (!spec().IsMoeLayer(layer)) {
        forward.Dense(w.feed_forward);
        continue;
      }
      EXPECT_TRUE(forward.Route(w.feed_forward).ok());
      for (int64_t e = 0; e < spec().num_experts; e += cut.experts) {
        const auto count = std::min(cut.experts, spec().num_experts - e);
        forward.Experts({std::span(w.feed_forward.experts).subspan(e, count), e});
      }
      forward.SharedExpert(w.feed_forward.dense);
    }
    forward.FinalNorm(weights.final_norm);
    for (int64_t first = 0; first < spec().vocab_size; first += cut.head) {
      PackedMatrix slice = weights.head;
      slice.rows = std::min(cut.head, spec().vocab_size - first);
      slice.data += PackedBytes(slice.dtype, first, slice.cols);
      forward.Head({slice, first});
    }
    ForwardOutcome outcome;
    EXPECT_TRUE(forward
                    .Logits([&](int64_t, std::span<const float> logits) {
                      outcome.logits.emplace_back(logits.begin(), logits.end());
                    })
                    .ok());
    outcome.kv = sequence.Contents(std::ssize(tokens));
    return outcome;
  }

  SyntheticSegment model_;
  WorkerPool pool_{2};
};

TEST_F(PromptForwardTest, BitsAreTheEnginesHoweverItIsCut) {
  for (const int64_t count : {1, 70, 131}) {
    const std::vector<int32_t> tokens = model::RandomTokens(count, spec().token_count, 5);
    for (const model::MlaForm form : {model::MlaForm::kAbsorbed, model::MlaForm::kUnabsorbed}) {
      const ForwardOutcome expected = Expected(tokens, form);
      for (const Cut& cut : {Cut{1, 8, 128}, Cut{16, 1, 256}, Cut{33, 3, 128}, Cut{200, 2, 128}}) {
        SCOPED_TRACE(testing::Message() << count << " tokens, tiles of " << cut.tile << ", " << cut.experts
                                        << " experts together");
        const ForwardOutcome outcome = InModules(tokens, form, cut);
        EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
        EXPECT_EQ(outcome.kv, expected.kv);
      }
    }
  }
}

TEST_F(PromptForwardTest, RefusesWhatDoesNotFit) {
  constexpr int64_t kMost = model::kLogitRows + 4;
  PromptForward forward(spec(), TestKernels(), pool_, {.max_rows = kMost, .tile_rows = kMost});
  const model::TestSequence sequence(spec(), 2 * kMost);
  const kv::KvPages pages[] = {sequence.pages()};
  const auto begin = [&](int64_t count) {
    return forward.Begin(model::MakeRows(model::RandomTokens(count, spec().token_count, 1), 0), pages,
                         model::MlaForm::kAbsorbed);
  };
  EXPECT_TRUE(begin(model::kLogitRows).ok());
  EXPECT_THAT(begin(kMost + 1).message(), testing::HasSubstr("1 to 68 rows"));
  EXPECT_THAT(begin(model::kLogitRows + 1).message(), testing::HasSubstr("65 rows want logits"));
}

class NoSharedExpertTest : public PromptForwardTest {
 protected:
  NoSharedExpertTest() : PromptForwardTest({.spec = BareSpec()}) {}
};

TEST_F(NoSharedExpertTest, BitsAreTheEngines) {
  const std::vector<int32_t> tokens = model::RandomTokens(50, spec().token_count, 5);
  const ForwardOutcome expected = Expected(tokens, model::MlaForm::kAbsorbed);
  const ForwardOutcome outcome = InModules(tokens, model::MlaForm::kAbsorbed, {20, 3, 128});
  EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
  EXPECT_EQ(outcome.kv, expected.kv);
}

class TypedPromptForwardTest : public TypedRunTest, public PromptForwardTest {
 protected:
  TypedPromptForwardTest() : PromptForwardTest(GetParam().options) {}
};

TEST_P(TypedPromptForwardTest, BitsAreTheEngines) {
  const std::vector<int32_t> tokens = model::RandomTokens(70, spec().token_count, 5);
  for (const model::MlaForm form : {model::MlaForm::kAbsorbed, model::MlaForm::kUnabsorbed}) {
    const ForwardOutcome expected = Expected(tokens, form);
    const ForwardOutcome outcome = InModules(tokens, form, {33, 3, 128});
    EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
    EXPECT_EQ(outcome.kv, expected.kv);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TypedPromptForwardTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace moestro::engine
