#include "services/router/text/constraint_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/text/grammar/limits.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;
using text::grammar::kMaxCompileSteps;
using text::grammar::kQuickCompileSteps;

absl::Status Here() { return absl::OkStatus(); }

Constraint Schema(std::string text) { return {Constraint::Kind::kJsonSchema, std::move(text)}; }

// Takes more than the quick budget, and less than the whole.
Constraint Large() {
  std::string members;
  for (int i = 0; i < 300; ++i) {
    members += (i == 0 ? "" : ",") + std::string("\"") + std::to_string(i) + "\":{\"enum\":[\"a\",\"b\",\"" +
               std::to_string(i) + "\"]}";
  }
  return Schema("{\"type\":\"object\",\"properties\":{" + members + "}}");
}

TEST(ConstraintCheckTest, SaysWhatIsWrong) {
  KnownConstraints known;
  ConstraintCheck check = ConstraintCheck::Quick(known);
  EXPECT_TRUE(check.Compile({}).ok()) << "no constraint";
  EXPECT_TRUE(check.Compile(Schema("{}")).ok());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(std::string(check.Compile(Schema(R"({"uniqueItems":true})")).message()), HasSubstr("uniqueItems"));
    EXPECT_THAT(std::string(check.Compile({Constraint::Kind::kGrammar, "root ::= x"}).message()),
                HasSubstr("'x' is not defined"));
  }
  EXPECT_FALSE(check.is_interrupted());
}

TEST(ConstraintCheckTest, OneTextIsAnotherConstraintInEachKind) {
  KnownConstraints known;
  ConstraintCheck check = ConstraintCheck::Quick(known);
  EXPECT_TRUE(check.Compile({Constraint::Kind::kRegex, "a"}).ok());
  EXPECT_FALSE(check.Compile({Constraint::Kind::kGrammar, "a"}).ok());
}

TEST(ConstraintCheckTest, WhatTakesLongInterruptsTheQuickBudgetOnly) {
  KnownConstraints known;
  ConstraintCheck quick = ConstraintCheck::Quick(known);
  EXPECT_TRUE(absl::IsResourceExhausted(quick.Compile(Large())));
  EXPECT_TRUE(quick.is_interrupted());

  ConstraintCheck whole = ConstraintCheck::Whole(known, Here);
  EXPECT_TRUE(whole.Compile(Large()).ok());
  EXPECT_FALSE(whole.is_interrupted());

  ConstraintCheck again = ConstraintCheck::Quick(known);
  EXPECT_TRUE(again.Compile(Large()).ok()) << "its result is known";
  EXPECT_FALSE(again.is_interrupted());
}

TEST(ConstraintCheckTest, AllWorkOnARequestHasOneBudget) {
  KnownConstraints known;
  ConstraintCheck spent = ConstraintCheck::Whole(known, Here);
  EXPECT_TRUE(spent.SpendBytes(16 * (kMaxCompileSteps - 10)).ok());
  EXPECT_THAT(std::string(spent.Compile(Large()).message()), HasSubstr("too many steps"));
  EXPECT_FALSE(spent.is_interrupted()) << "no other budget is larger";
  ConstraintCheck fresh = ConstraintCheck::Whole(known, Here);
  EXPECT_TRUE(fresh.Compile(Large()).ok()) << "the result was that of the budget, and was not kept";

  ConstraintCheck at_bound = ConstraintCheck::Quick(known);
  EXPECT_TRUE(at_bound.SpendBytes(16 * kQuickCompileSteps).ok());
  EXPECT_FALSE(at_bound.is_interrupted());
  EXPECT_FALSE(at_bound.SpendBytes(16).ok());
  EXPECT_TRUE(at_bound.is_interrupted());
}

TEST(ConstraintCheckTest, EndsWithItsCaller) {
  KnownConstraints known;
  int looks = 0;
  ConstraintCheck check = ConstraintCheck::Whole(
      known, [&] { return ++looks < 3 ? absl::OkStatus() : absl::CancelledError("the client is gone"); });
  EXPECT_FALSE(check.Compile(Large()).ok());
  EXPECT_TRUE(check.is_interrupted());
  EXPECT_EQ(looks, 3);
  ConstraintCheck whole = ConstraintCheck::Whole(known, Here);
  EXPECT_TRUE(whole.Compile(Large()).ok()) << "nothing was kept of it";
}

TEST(KnownConstraintsTest, ForgetsTheOldest) {
  KnownConstraints known;
  for (int i = 0; i <= 1024; ++i) {
    known.Note(std::to_string(i), absl::OkStatus());
    if (i != 1) continue;
    EXPECT_TRUE(known.Find("0").has_value()) << "and so it is recent";
  }
  EXPECT_TRUE(known.Find("0").has_value());
  EXPECT_FALSE(known.Find("1").has_value());
  EXPECT_TRUE(known.Find("2").has_value());
  known.Note("long", absl::InvalidArgumentError(std::string(801, 'x')));
  EXPECT_FALSE(known.Find("long").has_value());
  known.Note("less long", absl::InvalidArgumentError(std::string(800, 'x')));
  EXPECT_TRUE(known.Find("less long").has_value());
}

}  // namespace
}  // namespace moestro::router
