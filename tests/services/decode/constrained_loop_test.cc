// Sequences with constraints among others. The test model's tokens are the bytes below 210.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "common/text/grammar/vocabulary_grammars.h"
#include "tests/services/decode/decode_fixture.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::decode {
namespace {

using ::testing::HasSubstr;

class ConstrainedLoopTest : public ::testing::Test {
 protected:
  std::shared_ptr<TokenStream> Prompt(const std::vector<int32_t>& tokens, const Continuation& next) {
    const auto lease =
        node_.leases.Reserve({.tokens = tokens, .max_tokens = next.max_tokens, .arrival = ++arrivals_}).value();
    return node_.loop.Prompt(lease, next).value();
  }
  // `generated`: tokens of an earlier attempt.
  Continuation Next(const Constraint& constraint, std::span<const int32_t> generated = {},
                    std::vector<int32_t> stop_ids = {}) {
    return {.index = generated.size(),
            .max_tokens = 100,
            .sampling = {.temperature = 2, .seed = 5},
            .stop_ids = stop_ids,
            .constraint = text::grammar::Resume(grammars_, constraint, stop_ids, generated).value()};
  }
  static std::string Text(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

  static Constraint Regex(std::string text) { return {Constraint::Kind::kRegex, std::move(text)}; }

  const std::vector<int32_t> prompt_ = {20, 30, 40, 50};
  text::grammar::VocabularyGrammars grammars_{
      [] { return text::Tokenizer::Create({.tokenizer_json = moestro::testing::TinyTokenizerJson()}); }, 210};
  EngineNode alone_{256};
  DecodeNode node_{{.max_batch = 4, .max_chunk = 16}};
  uint64_t arrivals_ = 0;
};

TEST_F(ConstrainedLoopTest, EveryTextHasTheForm) {
  const DecodeOutcome outcome = Collect(*Prompt(prompt_, Next(Regex("[a-z]{3,9}: (-?[0-9]{2},){1,4}end"))));
  EXPECT_EQ(outcome.reason, FinishReason::kStop) << outcome.error;
  EXPECT_TRUE(std::regex_match(Text(outcome.ids), std::regex("[a-z]{3,9}: (-?[0-9]{2},){1,4}end")))
      << Text(outcome.ids);
}

TEST_F(ConstrainedLoopTest, AStopIdEndsOnlyAWholeText) {
  const int32_t stop = 7;
  const DecodeOutcome outcome = Collect(*Prompt(prompt_, Next(Regex("(ab)+"), {}, {stop})));
  EXPECT_TRUE(std::regex_match(Text(outcome.ids), std::regex("(ab)+"))) << Text(outcome.ids);
}

TEST_F(ConstrainedLoopTest, AnAttemptGoesOnFromTheTokensOfTheLast) {
  const Constraint constraint = Regex("[0-9]{20}[a-f]{20}");
  const DecodeOutcome whole = Collect(*Prompt(prompt_, Next(constraint)));
  ASSERT_EQ(whole.ids.size(), 40u);
  for (const int64_t kept : {1, 19, 20, 39}) {
    const std::vector<int32_t> generated(whole.ids.begin(), whole.ids.begin() + kept);
    std::vector<int32_t> tokens = prompt_;
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    const DecodeOutcome rest = Collect(*Prompt(tokens, Next(constraint, generated)));
    EXPECT_EQ(rest.ids, std::vector<int32_t>(whole.ids.begin() + kept, whole.ids.end())) << kept;
  }
}

TEST_F(ConstrainedLoopTest, NeighboursKeepTheirBits) {
  const std::vector<int32_t> other = {60, 70, 80};
  const DecodeOutcome expected = RunAlone(alone_, other, 30, {});
  const auto constrained = Prompt(prompt_, Next(Regex("[a-z]{60}")));
  const DecodeOutcome outcome = Collect(*Prompt(other, {.max_tokens = 30}));
  EXPECT_EQ(outcome.ids, expected.ids);
  EXPECT_EQ(outcome.logprobs, expected.logprobs);
  EXPECT_EQ(Collect(*constrained).ids.size(), 60u);
}

// Masks are computed beside the step, which may not sample before them.
TEST_F(ConstrainedLoopTest, AStepWaitsForItsMasksWhoeverElseIsInIt) {
  node_.gate.SetClosed(true);
  const auto free = Prompt({60, 70, 80}, {.max_tokens = 60});  // from the first step on, and for longer
  const auto constrained = Prompt(prompt_, Next(Regex("[a-z]{20}")));
  node_.gate.SetClosed(false);
  EXPECT_EQ(Collect(*constrained).ids.size(), 20u);
  EXPECT_EQ(Collect(*free).ids.size(), 60u);
  EXPECT_GT(node_.metrics.mask_wait_seconds.Value(), 0);
}

TEST_F(ConstrainedLoopTest, LogprobsAreThoseOfTheModel) {
  // What the model says of a token does not change when the token is forced.
  const DecodeOutcome outcome = Collect(*Prompt(prompt_, Next(Regex("x"))));
  ASSERT_EQ(outcome.ids, std::vector<int32_t>{'x'});
  EXPECT_LT(outcome.logprobs[0], 0) << "not 0, as for the only possible token";
}

TEST_F(ConstrainedLoopTest, ATextThatNoTokenContinuesIsAnError) {
  // It begins with the byte F0, which the model has not.
  const DecodeOutcome outcome = Collect(*Prompt(prompt_, Next(Regex("a\\u{1F600}"))));
  EXPECT_EQ(outcome.error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.error.message()), HasSubstr("no token that continues"));
}

}  // namespace
}  // namespace moestro::decode
