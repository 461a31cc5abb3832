#include "common/text/grammar/gbnf.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/common/text/grammar/grammar_fixture.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;
constexpr Constraint::Kind kGrammar = Constraint::Kind::kGrammar;

struct Golden {
  const char* grammar;
  std::vector<std::string> whole;
  std::vector<std::string> none;
};

TEST(GbnfTest, MatchesAsLlamaCppSays) {
  const std::vector<Golden> goldens = {
      {R"(root ::= "a" [bc]+ "d"?)", {"ab", "abcbd", "acd"}, {"a d", "b", "abdd"}},
      {"# comment\nroot  ::= expr # more\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]{1,3} | \"(\" expr \")\"\n",
       {"1", "12+345", "(1+(2+3))+4"},
       {"1234", "1++2", "1)"}},
      {R"(root ::= "\x41\u00e9\U0001F600\n\t\\\"")",
       {"A\u00e9\U0001F600\n\t\\\""},
       {"A"
        "e"}},
      {"root ::= [^\"\\\\]{2}", {"ab", "\u20ac\u00e9"}, {"a\"", "\\a", "abc"}},
      {"root ::= .", {"x", "\n", "\u20ac"}, {"xy"}},
      {"root ::= (\n  \"a\"\n  | \"b\"\n)\n", {"a", "b"}, {"ab"}},
      {"root ::= \"a\" |\n  \"b\"\n  | \"c\"", {"a", "b", "c"}, {"d"}},
      {"root ::= \"ab\"{2} \"c\"{,2} [-x]{1,}", {"abab-", "ababccx-"}, {"abb-", "ababccc-"}},
      {"root ::= \"a\" root | \"\"", {"", "aaaa"}, {"b"}},
      {"root ::= a-b\na-b ::= [a-c-]", {"a", "c", "-"}, {"d"}},
      {"root ::= \"\"", {""}, {"a"}},
      // The same text on two ways, and a rule that may be nothing in the middle.
      {"root ::= x x x\nx ::= \"a\"*", {"", "a", "aaaaaaa"}, {"b"}},
  };
  for (const Golden& golden : goldens) {
    const auto automaton = MakeAutomaton(kGrammar, golden.grammar);
    ASSERT_NE(automaton, nullptr);
    for (const std::string& text : golden.whole)
      EXPECT_TRUE(Matches(automaton, text)) << golden.grammar << "\n" << text;
    for (const std::string& text : golden.none) {
      EXPECT_EQ(FitOf(automaton, text), Fit::kNone) << golden.grammar << "\n" << text;
    }
  }
}

TEST(GbnfTest, HasOtherNotationsInside) {
  const auto automaton = MakeAutomaton(kGrammar,
                                       "root ::= (a | b)+ %json {\"type\": \"object\", \"properties\":\n"
                                       "  {\"x\": {\"enum\": [\"}\"]}}, \"required\": [\"x\"]} \";\"\n"
                                       "a ::= %regex \"[0-9]{2}\"\n"
                                       "b ::= %grammar \"root ::= a\\na ::= \\\"z\\\"\"\n");
  EXPECT_TRUE(Matches(automaton, "12z34{\"x\": \"}\"};"));
  EXPECT_EQ(FitOf(automaton, "1z"), Fit::kNone);
  EXPECT_EQ(FitOf(automaton, "z{\"x\": \"z"), Fit::kNone);
}

// Against a search in the text.
TEST(GbnfTest, UntilEndsWithTheFirst) {
  for (const std::string& end : {std::string("</a>"), std::string("aab"), std::string("abab"), std::string("aa"),
                                 std::string("a"), std::string("b\u20ac")}) {
    const auto automaton = MakeAutomaton(kGrammar, "root ::= %until \"" + end + "\"");
    const auto without = MakeAutomaton(kGrammar, "root ::= %without \"" + end + "\"");
    uint32_t random = 1;
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 12; ++i) {
        random = random * 1664525 + 1013904223;
        static constexpr const char* kPieces[] = {"a", "b", "</a>", "<", "\u20ac", "/", "aab"};
        text += kPieces[(random >> 16) % std::size(kPieces)];
      }
      const size_t found = text.find(end);
      const Fit expected = found == std::string::npos          ? Fit::kBegins
                           : found + end.size() == text.size() ? Fit::kWhole
                                                               : Fit::kNone;
      ASSERT_EQ(FitOf(automaton, text), expected) << end << " in " << text;
      ASSERT_EQ(FitOf(without, text), found == std::string::npos ? Fit::kWhole : Fit::kNone) << end << " in " << text;
    }
  }
}

// What begins like the text may still become it, where the text may follow.
TEST(GbnfTest, WithoutLeavesTheTextToWhatFollows) {
  const auto automaton = MakeAutomaton(kGrammar, "root ::= %without \"<c>\" (%token \"<c>\" [0-9])?");
  for (const std::string text : {"", "a<c", "a<<c>1", "<c>2"}) EXPECT_TRUE(Matches(automaton, text)) << text;
  EXPECT_TRUE(Matches(automaton, "a" + SpecialTokenBytes("<c>") + "1"));
  EXPECT_EQ(FitOf(automaton, "a<c>"), Fit::kBegins);
  for (const std::string text : {"<c>x", "<c>1<c>1"}) EXPECT_EQ(FitOf(automaton, text), Fit::kNone) << text;
  EXPECT_EQ(FitOf(automaton, SpecialTokenBytes("<other>")), Fit::kNone);
}

TEST(GbnfTest, SpecialTokensAreNowhereElse) {
  const auto special = [](const std::string& text) { return SpecialTokenBytes(text); };
  const auto automaton = MakeAutomaton(kGrammar, "root ::= <think> %until \"</t>\" .* %token \"[C]\"");
  EXPECT_TRUE(Matches(automaton, special("<think>") + "x" + special("</t>") + "y" + special("[C]")));
  EXPECT_TRUE(Matches(automaton, "<think>x</t>y[C]"));
  EXPECT_EQ(FitOf(automaton, special("<other>")), Fit::kNone);
  EXPECT_EQ(FitOf(automaton, "<think>" + special("<think>")), Fit::kNone);
  EXPECT_EQ(FitOf(automaton, "<think></t>" + special("</t>")), Fit::kNone);
  EXPECT_EQ(FitOf(automaton, "<think></" + special("</t>")), Fit::kBegins) << "whatever was before it";
}

TEST(GbnfTest, KnowsWhatOnlyBeginsAText) {
  const auto automaton = MakeAutomaton(kGrammar, "root ::= \"\u20ac\" \"x\"");
  const std::string euro = "\u20ac";
  EXPECT_EQ(FitOf(automaton, euro.substr(0, 1)), Fit::kBegins);
  EXPECT_EQ(FitOf(automaton, euro), Fit::kBegins);
  EXPECT_EQ(FitOf(automaton, euro.substr(1)), Fit::kNone);
}

TEST(GbnfTest, ErrorsNameTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no rule 'root'"},
      {"x ::= \"a\"", "no rule 'root'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar line 2: rule 'root' is defined twice"},
      {"root ::= \"a\"\n  missing", "grammar line 2: expected '::='"},
      {"root ::= \"a\"\nx ::= y\n", "grammar line 2: rule 'y' is not defined"},
      {"\nroot ::= \"a", "grammar line 2: expected the end of the literal"},
      {"root ::= (\"a\"\n", "grammar line 1: '(' without ')'"},
      {"root ::= \"a\")", "grammar line 1: expected the end of the line, not ')'"},
      {"root ::= \"\\q\"", "malformed escape"},
      {"root ::= \"\\ud800\"", "malformed escape"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= \"a\"{3,2}", "fewer than the least"},
      {"root ::= \"a\"{100000}", "more than 16384 repetitions"},
      {"root ::= \"a\"{}", "expected a count"},
      {"root ::= <think", "'<' without '>'"},
      {"root ::= <[17]>", "tokens by their ids"},
      {"root ::= !<think>", "tokens other than one"},
      {"root ::= %xml \"a\"", "%xml is none of"},
      {"root ::= %until \"\"", "the text after %until is empty"},
      {"root ::= %until a", "expected a literal after %until"},
      {"root ::= \"a\"\nx ::= %json {\"type\": \"array\", \"uniqueItems\": true}",
       "grammar line 2: schema: #: 'uniqueItems'"},
      {"root ::= %json {\"type\"", "not valid JSON"},
      {"root ::= %regex \"(\"", "grammar line 1: "},
      {"root ::= %grammar \"root ::= x\"", "grammar line 1: grammar line 1: rule 'x' is not defined"},
      {"root = \"a\"", "expected '::='"},
      {"root ::= \xff", "invalid UTF-8 at byte 9"},
      {"root ::= root \"a\" | \"b\"", "rule 'root' begins with itself (left recursion)"},
      {"root ::= a\na ::= b\nb ::= \"x\"? a \"y\" | \"z\"", "begins with itself"},
      {"root ::= \"a\" loop\nloop ::= \"b\" loop", "rule 'loop' matches no text that ends"},
      {"root ::= []", "matches no text"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ErrorOf(kGrammar, text), HasSubstr(message)) << text;
}

}  // namespace
}  // namespace moestro::text::grammar
