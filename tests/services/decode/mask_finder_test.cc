#include "services/decode/mask_finder.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "common/text/grammar/limits.h"
#include "common/text/grammar/vocabulary_grammars.h"
#include "tests/services/router/tiny_tokenizer.h"
#include "tests/support/dear_grammar.h"

namespace moestro::decode {
namespace {

using text::grammar::kQuickMaskSteps;
using text::grammar::TokenConstraint;

class MaskFinderTest : public ::testing::Test {
 protected:
  std::shared_ptr<TokenConstraint> Make(Constraint::Kind kind, const std::string& text) {
    return Resume(grammars_, {kind, text}, {}, {}, [] { return absl::OkStatus(); }).value();
  }
  void Wait(const MaskFinder::Search& search) const {
    while (!search.done()) std::this_thread::yield();
  }

  text::grammar::VocabularyGrammars grammars_{
      [] { return text::Tokenizer::Create({.tokenizer_json = moestro::testing::TinyTokenizerJson()}); }, 210};
  MetricsRegistry registry_{"decode"};
  DecodeMetrics metrics_{registry_};
  std::atomic<int> found_ = 0;
};

TEST_F(MaskFinderTest, FindsTheMasksOfTheConstraint) {
  MaskFinder finder(metrics_, [&] { ++found_; });
  const auto constraint = Make(Constraint::Kind::kRegex, "[a-c]{3}");
  const auto search = finder.Find(constraint, /*dear=*/false);
  Wait(*search);
  ASSERT_TRUE(search->mask().ok());
  EXPECT_EQ((*search->mask())->count(), 3);
  EXPECT_FALSE(search->is_dear());
  while (found_ == 0) std::this_thread::yield();
}

// The state after a few tokens, at which many positions are possible.
TEST_F(MaskFinderTest, ADearMaskIsTheSameOnEitherLane) {
  MaskFinder finder(metrics_, [&] { ++found_; });
  const std::string grammar = DearGrammar(/*length=*/3);
  const auto one = Make(Constraint::Kind::kGrammar, grammar);
  const auto other = Make(Constraint::Kind::kGrammar, grammar);
  for (const auto& constraint : {one, other}) {
    for (const int32_t token : {'a', 'b', 'c', 'd'}) ASSERT_TRUE(constraint->Advance(token).ok());
  }
  const auto tried = finder.Find(one, /*dear=*/false);
  const auto known = finder.Find(other, /*dear=*/true);
  Wait(*tried);
  Wait(*known);
  ASSERT_TRUE(tried->mask().ok()) << tried->mask().status();
  ASSERT_TRUE(known->mask().ok()) << known->mask().status();
  EXPECT_EQ(**tried->mask(), **known->mask());
  EXPECT_EQ((*known->mask())->count(), 95);
  EXPECT_TRUE(known->is_dear());
}

TEST_F(MaskFinderTest, WhatNobodyWantsIsGivenUp) {
  MaskFinder finder(metrics_, [&] { ++found_; });
  const std::weak_ptr<TokenConstraint> constraint = [&] {
    const auto made = Make(Constraint::Kind::kGrammar, DearGrammar());
    (void)finder.Find(made, /*dear=*/true);
    return made;
  }();
  while (!constraint.expired()) std::this_thread::yield();
  EXPECT_EQ(found_, 0);
}

TEST_F(MaskFinderTest, EndsWithSearchesUnderWay) {
  const auto constraint = Make(Constraint::Kind::kGrammar, DearGrammar());
  std::unique_ptr<MaskFinder::Search> search;
  MaskFinder finder(metrics_, [&] { ++found_; });
  search = finder.Find(constraint, /*dear=*/false);
}

}  // namespace
}  // namespace moestro::decode
