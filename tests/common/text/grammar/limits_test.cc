// Each limit of limits.h at the bound and beyond it.
#include "common/text/grammar/limits.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/grammar.h"
#include "gmock/gmock.h"
#include "tests/common/text/grammar/grammar_fixture.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;
using Kind = Constraint::Kind;

std::string Times(const std::string& text, size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// A constraint whose size is one number.
using OfSize = std::function<std::string(size_t)>;
void ExpectBound(Kind kind, size_t bound, const OfSize& make, const std::string& error) {
  EXPECT_EQ(ErrorOf(kind, make(bound)), "compiles") << error;
  EXPECT_THAT(ErrorOf(kind, make(bound + 1)), HasSubstr(error));
}

TEST(GrammarLimits, BytesOfAConstraint) {
  ExpectBound(
      Kind::kGrammar, kMaxConstraintBytes,
      [](size_t bytes) {
        std::string text = "root ::= \"a\"";
        text.resize(bytes, ' ');
        return text;
      },
      "longer than 262144 bytes");
}

TEST(GrammarLimits, Nesting) {
  const auto groups = [](size_t depth) { return Times("(", depth) + "a" + Times(")", depth); };
  ExpectBound(Kind::kRegex, kMaxNesting, groups, "nested deeper than 100");
  ExpectBound(
      Kind::kGrammar, kMaxNesting, [&](size_t depth) { return "root ::= " + groups(depth) + "\na ::= \"a\""; },
      "nested deeper than 100");
  ExpectBound(
      Kind::kGrammar, kMaxNesting, [](size_t count) { return "root ::= \"a\"" + Times("?", count); },
      "too many repetitions of repetitions");
}

TEST(GrammarLimits, Rules) {
  Grammar grammar;
  const NodeId nothing = grammar.Bytes("");
  const auto error = [&] {
    CompileBudget budget;
    return std::string(Automaton::Compile(grammar, budget).status().message());
  };
  for (size_t i = 0; i < kMaxRules; ++i) grammar.AddRule("r", nothing);
  EXPECT_EQ(error(), "");
  grammar.AddRule("r", nothing);
  EXPECT_THAT(error(), HasSubstr("over 16384 rules"));
}

// 180 KB in twice as many lines. A parser that counts lines from the first one at each rule takes seconds.
TEST(GrammarLimits, RulesOfAText) {
  ExpectBound(
      Kind::kGrammar, kMaxRules,
      [](size_t rules) {
        std::string text = "root ::= r1\n\n";
        for (size_t i = 1; i < rules; ++i) absl::StrAppend(&text, "r", i, "::=\"\"\n\n");
        return text;
      },
      "over 16384 rules");
}

TEST(GrammarLimits, BytesAfterUntilAndWithout) {
  for (const char* word : {"until", "without"}) {
    ExpectBound(
        Kind::kGrammar, kMaxUntilBytes,
        [&](size_t bytes) { return absl::StrCat("root ::= %", word, " \"", std::string(bytes, 'x'), "\""); },
        absl::StrCat("over 256 bytes after %", word));
  }
}

TEST(GrammarLimits, Repetitions) {
  ExpectBound(
      Kind::kGrammar, kMaxRepetitions, [](size_t times) { return absl::StrCat("root ::= \"a\"{", times, "}"); },
      "more than 16384 repetitions");
  ExpectBound(
      Kind::kRegex, kMaxRepetitions, [](size_t times) { return absl::StrCat("a{0,", times, "}"); },
      "more than 16384 repetitions");
  ExpectBound(
      Kind::kJsonSchema, kMaxRepetitions,
      [](size_t items) { return absl::StrFormat(R"({"type":"array","items":{"const":1},"minItems":%d})", items); },
      "above 16384 cannot be enforced");
}

// What is built for a part is counted before the next one.
TEST(GrammarLimits, States) {
  constexpr size_t kPart = 1024;
  const auto parts = [](size_t count) {
    return absl::StrCat("root ::= \"", std::string(kPart, 'a'), "\"{", count, "}");
  };
  ExpectBound(Kind::kGrammar, kMaxStates / kPart, parts, "over 262144 states");
  EXPECT_NEAR(MakeAutomaton(Kind::kGrammar, parts(kMaxStates / kPart))->state_count(), kMaxStates, kPart);
}

// Behind each of 64 letters, which are states of their own, each may follow.
TEST(GrammarLimits, Edges) {
  constexpr size_t kLetters = 64;
  std::string letter = "(\"\\x21\"";
  for (size_t i = 1; i < kLetters; ++i) absl::StrAppendFormat(&letter, "|\"\\x%02x\"", 0x21 + i);
  const auto words = [&](size_t letters) { return absl::StrCat("root ::= ", letter, "){", letters, "}"); };
  // The first letter has one state before it.
  constexpr size_t kMost = 1 + (kMaxEdges - kLetters) / (kLetters * kLetters);
  ExpectBound(Kind::kGrammar, kMost, words, "over 524288 edges");
}

// A part of allOf is merged into a copy of the schema, which lives while the schemas inside are compiled.
TEST(GrammarLimits, ValuesOfCopies) {
  constexpr size_t kLevels = 16;
  const auto copies = [](size_t values) {
    std::string schema = R"({"const":1,"examples":[1)" + Times(",1", values) + "]}";
    for (size_t i = 0; i < kLevels; ++i) {
      schema = R"({"type":"object","properties":{"p":)" + schema + R"(},"required":["p"],"allOf":[{}]})";
    }
    return schema;
  };
  size_t most = 0;
  for (size_t step = kMaxHeldValues / kLevels; step > 0; step /= 2) {
    if (ErrorOf(Kind::kJsonSchema, copies(most + step)) == "compiles") most += step;
  }
  ExpectBound(Kind::kJsonSchema, most, copies, "what references, allOf and anyOf repeat is too large");
  EXPECT_NEAR(static_cast<double>(most * kLevels), static_cast<double>(kMaxHeldValues), 3.0 * static_cast<double>(most))
      << "the innermost copy is there three times while it is made";
}

TEST(GrammarLimits, NodesAndTheirBytes) {
  Grammar nodes;
  for (size_t i = 0; i < kMaxNodes; ++i) nodes.Bytes("");
  EXPECT_FALSE(nodes.is_too_large());
  nodes.Bytes("");
  EXPECT_TRUE(nodes.is_too_large());
  Grammar bytes;
  bytes.Bytes(std::string(kMaxNodeBytes, 'a'));
  EXPECT_FALSE(bytes.is_too_large());
  bytes.Bytes("a");
  EXPECT_TRUE(bytes.is_too_large());
  EXPECT_EQ(bytes.nodes().size(), 1u) << "it is not kept";

  Grammar half;
  for (size_t i = 0; i < kMaxNodes / 2; ++i) half.Bytes("");
  half.AddRule("root", 0);
  Grammar both;
  both.Import(half);  // and a call
  EXPECT_FALSE(both.is_too_large());
  both.Import(half);
  EXPECT_TRUE(both.is_too_large());
  CompileBudget budget;
  EXPECT_THAT(std::string(Automaton::Compile(both, budget).status().message()), HasSubstr("too many parts"));
}

TEST(GrammarLimits, StepsOfCompiling) {
  CompileBudget budget;
  EXPECT_TRUE(budget.Spend(kMaxCompileSteps - 1).ok());
  EXPECT_TRUE(budget.Spend(1).ok());
  EXPECT_THAT(std::string(budget.Spend(1).message()), HasSubstr("compiling it takes too many steps"));
}

// After `text` byte by byte, without forgetting.
absl::Status StatusAfter(const std::string& grammar, const std::string& text) {
  Matcher matcher(MakeAutomaton(Kind::kGrammar, grammar));
  Matcher::Configuration at = matcher.start();
  for (const char c : text) {
    at = matcher.Next(at, static_cast<uint8_t>(c));
    matcher.Begin({});
  }
  return matcher.status();
}

TEST(GrammarLimits, PositionsAtOnce) {
  const auto ways = [](size_t count) {
    std::string grammar = "root ::= \"a\"* \"0\"";
    for (size_t i = 1; i < count; ++i) absl::StrAppend(&grammar, "|\"a\"* \"", i, "\"");
    return grammar;
  };
  EXPECT_TRUE(StatusAfter(ways(kMaxPositions), "aa").ok());
  EXPECT_THAT(std::string(StatusAfter(ways(kMaxPositions + 1), "aa").message()), HasSubstr("too ambiguous"));
}

// Each "a" makes a configuration of its own.
TEST(GrammarLimits, ConfigurationsWithinOneMask) {
  const std::string nested = "root ::= \"a\" root \"b\" | \"x\"";
  constexpr size_t kMost = kKeptConfigurations * kMaskGrowth;
  EXPECT_TRUE(StatusAfter(nested, std::string(kMost - 1, 'a')).ok());
  EXPECT_THAT(std::string(StatusAfter(nested, std::string(kMost, 'a')).message()),
              HasSubstr("too many positions are possible"));
}

// Four hundred loops of different lengths: each byte makes a configuration of as many positions, which are kept thrice.
TEST(GrammarLimits, PositionsWithinOneMask) {
  constexpr size_t kLoops = 400, kMost = kKeptPositions * kMaskGrowth / (3 * kLoops);
  std::string grammar = "root ::= \"x\"";
  for (size_t i = 0; i < kLoops; ++i) absl::StrAppend(&grammar, "|(\"a\"{", 100 + i, "})*");
  EXPECT_TRUE(StatusAfter(grammar, std::string(kMost * 9 / 10, 'a')).ok());
  EXPECT_THAT(std::string(StatusAfter(grammar, std::string(kMost * 11 / 10, 'a')).message()),
              HasSubstr("too many positions are possible"));
}

// Each "a" calls eight rules from places of their own, and all of them the root.
TEST(GrammarLimits, CallsWithinOneMask) {
  constexpr size_t kRules = 8, kMost = kKeptCalls * kMaskGrowth / (kRules + 1);
  std::string grammar = "root ::= \"x\"";
  for (size_t i = 0; i < kRules; ++i) absl::StrAppend(&grammar, "|\"a\" r", i, " \"", i, "\"");
  for (size_t i = 0; i < kRules; ++i) absl::StrAppend(&grammar, "\nr", i, " ::= root");
  EXPECT_TRUE(StatusAfter(grammar, std::string(kMost - 10, 'a')).ok());
  EXPECT_THAT(std::string(StatusAfter(grammar, std::string(kMost + 10, 'a')).message()),
              HasSubstr("too many calls of rules are open"));
}

// What is open may fill half of what is kept, when the rest is forgotten.
TEST(GrammarLimits, NestingOfAText) {
  const auto status_at = [](size_t depth) {
    Matcher matcher(MakeAutomaton(Kind::kGrammar, "root ::= \"a\" root \"b\" | \"x\""));
    Matcher::Configuration at = matcher.start();
    for (size_t i = 0; i < depth; ++i) {
      at = matcher.Compact(matcher.Next(at, 'a'));
      matcher.Begin({});
    }
    return matcher.status();
  };
  EXPECT_TRUE(status_at(kKeptCalls / 2 - 1).ok());
  EXPECT_THAT(std::string(status_at(kKeptCalls / 2 + kKeptConfigurations).message()), HasSubstr("nests too deep"));
}

}  // namespace
}  // namespace moestro::text::grammar
