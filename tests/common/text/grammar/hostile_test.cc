// Constraints that are made to occupy a server: each ends, soon, with a clear error, or works.
#include <atomic>
#include <memory>
#include <string>

#include "common/text/grammar/limits.h"
#include "common/text/grammar/token_constraint.h"
#include "common/text/grammar/vocabulary_grammars.h"
#include "gmock/gmock.h"
#include "tests/common/text/grammar/grammar_fixture.h"
#include "tests/common/text/grammar/published_tokenizer.h"
#include "tests/support/dear_grammar.h"

namespace moestro::text::grammar {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Kind = Constraint::Kind;

// As a literal of GBNF.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '"' ? std::string("\\\"") : std::string(1, c);
  return escaped;
}

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HostileTest, DeepNestingIsRefused) {
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= " + Repeated("(", 50000) + "\"a\"" + Repeated(")", 50000)),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= \"a\"" + Repeated("*", 50000)), HasSubstr("too many repetitions"));
  EXPECT_THAT(ErrorOf(Kind::kRegex, Repeated("(", 50000) + "a" + Repeated(")", 50000)),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(ErrorOf(Kind::kJsonSchema, Repeated(R"({"items":)", 5000) + "{}" + Repeated("}", 5000)),
              HasSubstr("nested deeper than 64"));
  std::string references = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 1000; ++i) {
    references += "\"" + std::to_string(i) + R"(":{"items":{"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"}},";
  }
  EXPECT_THAT(ErrorOf(Kind::kJsonSchema, references + R"("1000":{}}})"), HasSubstr("nested too deep"));
}

TEST(HostileTest, HugeRepetitionsAreRefused) {
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= (((\"a\"{1000}){1000}){1000}){1000}"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= ((((\"\"){16000}){16000}){16000}){16000}"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= (\"a\"?){0,16000}"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf(Kind::kRegex, "((((a|b){1,999}){1,999}){1,999}){1,999}"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf(Kind::kJsonSchema, R"({"items":{"type":"string","minLength":8000},"minItems":8000})"), "compiles")
      << "the items are one rule";
  std::string doubling;  // each rule calls the next twice
  for (int i = 0; i < 60; ++i)
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(ErrorOf(Kind::kGrammar, "root ::= r0\n" + doubling + "r60 ::= \"a\""), "compiles");
  EXPECT_THAT(ErrorOf(Kind::kGrammar, "root ::= \"" + std::string(kMaxConstraintBytes, 'a') + "\""),
              HasSubstr("longer than"));
}

TEST(HostileTest, PartsThatMultiply) {
  // Each definition has the one before twice, with something beside: 2^25 schemas, if each were resolved each time.
  std::string schema = R"({"$ref":"#/$defs/25","$defs":{"0":{"type":"object"})";
  for (int i = 1; i <= 25; ++i) {
    const std::string before =
        "{\"$ref\":\"#/$defs/" + std::to_string(i - 1) + "\",\"minItems\":" + std::to_string(i) + "}";
    schema += ",\"" + std::to_string(i) + "\":{\"allOf\":[" + before + "," + before + "]}";
  }
  EXPECT_THAT(ErrorOf(Kind::kJsonSchema, schema + "}}"), "compiles");
  EXPECT_THAT(ErrorOf(Kind::kJsonSchema, R"({"type":"object","anyOf":[{"$ref":"#"},{"$ref":"#"},{"minimum":1}]})"),
              AnyOf(HasSubstr("too many schemas"), HasSubstr("too deep"), HasSubstr("twice")));
}

// Follows `text` as long as it can. The number of ways through the grammar grows exponentially with its length.
absl::Status Follow(const std::string& grammar, const std::string& text) {
  const auto automaton = MakeAutomaton(Kind::kGrammar, grammar);
  Matcher matcher(automaton);
  Matcher::Configuration at = matcher.start();
  for (const char c : text) {
    at = matcher.Compact(matcher.Next(at, static_cast<uint8_t>(c)));
    matcher.Begin({});
    if (!matcher.status().ok()) return matcher.status();
    EXPECT_NE(at, Matcher::kDead);
    if (at == Matcher::kDead) break;
  }
  return matcher.status();
}

TEST(HostileTest, AmbiguousGrammarsEnd) {
  const std::string as(3000, 'a');
  // Two ways at every character that end in the same place.
  EXPECT_TRUE(Follow("root ::= (\"a\" | \"a\")*", as).ok());
  EXPECT_TRUE(Follow("root ::= x*\nx ::= \"a\" | y\ny ::= \"a\"", as).ok());
  EXPECT_TRUE(Follow("root ::= (\"a\"* \"a\"*)* \"b\"", as).ok());
  // Two ways that must be told apart at the end: 2^3000 stacks, but one set of callers for each depth.
  EXPECT_TRUE(Follow("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"", as + "x" + std::string(3000, 'b')).ok());
  EXPECT_THAT(std::string(Follow("root ::= \"a\" root \"b\" | \"x\"", std::string(100000, 'a')).message()),
              HasSubstr("nests too deep"));
  // Every split of the text into parts.
  const absl::Status many = Follow("root ::= s\ns ::= \"a\" s s | \"a\"", std::string(20000, 'a'));
  EXPECT_THAT(std::string(many.message()), AnyOf("", HasSubstr("the grammar cannot be followed")));
}

// Four hundred loops of different lengths: no two steps reach the same positions.
TEST(HostileTest, AMaskHasABudget) {
  std::string grammar = "root ::= ";
  for (int i = 100; i < 500; ++i) grammar += "(\"a\"{" + std::to_string(i) + "})*|";
  const auto automaton = MakeAutomaton(Kind::kGrammar, grammar + "\"x\"");
  Matcher matcher(automaton);
  Matcher::Configuration at = matcher.start();
  int64_t bytes = 0;
  for (; matcher.status().ok() && bytes < kMaxMaskSteps / 100; ++bytes) at = matcher.Compact(matcher.Next(at, 'a'));
  EXPECT_THAT(std::string(matcher.status().message()), HasSubstr("too many steps"));
  EXPECT_GT(bytes * 400, kMaxMaskSteps / 8) << "and it is no smaller than limits.h says";
}

class DearMasksTest : public testing::Test {
 protected:
  const std::unique_ptr<const Tokenizer> tokenizer_ = PublishedTokenizer("qwen");
  const std::shared_ptr<VocabularyGrammar> grammar_ =
      std::make_shared<VocabularyGrammar>(CompileAlone({Kind::kGrammar, DearGrammar()}).value(),
                                          std::make_shared<const TokenTrie>(*tokenizer_, tokenizer_->size()));
  int32_t token_ = 0;  // of one letter

  void SetUp() override {
    while (tokenizer_->DecodeBytes(token_) != "a") ++token_;
  }
};

// What is asked for in small pieces is found all the same, and costs little more.
TEST_F(DearMasksTest, AMaskThatWasInterruptedGoesOn) {
  TokenConstraint whole(grammar_, {});
  TokenConstraint interrupted(grammar_, {});
  for (TokenConstraint* constraint : {&whole, &interrupted}) ASSERT_TRUE(constraint->Advance(token_).ok());
  std::atomic<bool> stop = true;
  EXPECT_TRUE(absl::IsResourceExhausted(interrupted.Mask({.stop = &stop}).status()));
  const absl::StatusOr<const TokenMask*> few = interrupted.Mask({.steps = 1000});
  EXPECT_TRUE(absl::IsResourceExhausted(few.status()));
  EXPECT_LT(interrupted.steps(), 100 * 1000) << "it ends soon after";
  const absl::StatusOr<const TokenMask*> expected = whole.Mask();
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_GT(whole.steps(), kQuickMaskSteps);
  const absl::StatusOr<const TokenMask*> found = interrupted.Mask();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(**found, **expected);
  EXPECT_TRUE(interrupted.Advance(token_).ok());
}

// Three seconds: it spends the budget.
TEST_F(DearMasksTest, TheMasksOfARequestHaveABudget) {
  TokenConstraint constraint(grammar_, {});
  int64_t spent = 0;
  int64_t tokens = 0;
  for (; tokens < 1000; ++tokens) {
    const bool within = spent <= kMaskStepsOfRequest + tokens * kMaskStepsOfToken;
    const absl::Status status = constraint.Mask().status();
    ASSERT_EQ(status.ok(), within) << status << " after " << spent << " steps";
    if (!within) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(spent) + " steps for"));
      break;
    }
    spent += constraint.steps();
    ASSERT_TRUE(constraint.Advance(token_).ok());
    spent += constraint.steps();
  }
  EXPECT_LT(tokens, 1000);
  EXPECT_GT(tokens, 2);
}

// Each of 300 members may be absent: more than the quick budget, whatever the schema stands in.
TEST(VocabularyGrammarsTest, WhatTakesLongToCompileIsCompiledInTheBackground) {
  VocabularyGrammars grammars([] { return PublishedTokenizer("qwen"); }, PublishedTokenizer("qwen")->size());
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 300; ++i) schema += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"enum":["a","b"]})";
  schema += "}}";
  const auto here = [] { return absl::OkStatus(); };
  const auto gone = [] { return absl::CancelledError("the caller went away"); };
  const std::string inner = R"(%grammar "root ::= %json )" + Escaped(schema) + "\"";
  for (const Constraint& constraint :
       {Constraint{Kind::kJsonSchema, schema}, Constraint{Kind::kGrammar, "root ::= %json " + schema},
        Constraint{Kind::kGrammar, "root ::= " + inner}}) {
    CompileBudget quick = CompileBudget::Quick();
    EXPECT_TRUE(absl::IsResourceExhausted(CompileConstraint(constraint, quick).status()));
    EXPECT_TRUE(absl::IsCancelled(grammars.Get(constraint, gone).status()));
    EXPECT_TRUE(grammars.Get(constraint, here).ok()) << grammars.Get(constraint, here).status();
  }
}

TEST(HostileTest, ManyPositionsAreAnError) {
  std::string grammar = "root ::= ";
  for (int i = 0; i < 5000; ++i) grammar += "(\"a\"* \"" + std::to_string(i) + "\")|";
  EXPECT_THAT(std::string(Follow(grammar + "\"x\"", "aaaa").message()), HasSubstr("too ambiguous"));
}

}  // namespace
}  // namespace moestro::text::grammar
