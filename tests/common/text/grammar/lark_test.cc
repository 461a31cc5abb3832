#include "common/text/grammar/lark.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/common/text/grammar/grammar_fixture.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;

struct LarkGolden {
  const char* grammar;
  std::vector<std::string> whole;
  std::vector<std::string> none;
};

TEST(LarkTest, MatchesAsLarkSays) {
  const std::vector<LarkGolden> goldens = {
      {"start: \"up\" | \"down\"", {"up", "down"}, {"x"}},
      // As guidance writes it.
      {"%llguidance {}\n\nstart: to\nto[capture]: TO\n\nTO: \"left\"\n     | \"right\"\n", {"left", "right"}, {"to"}},
      {"start: x\nx[capture=\"y\"]: X\nX: /[a-c]{3}\\/\"/", {"abc/\""}, {"abcd"}},
      {"// a comment\nstart: sum // more\n?sum: NUMBER (\"+\" NUMBER)* -> add # more\nNUMBER.2: \"0\"..\"9\"+\n",
       {"1", "12+3"},
       {"+", "1-"}},
      {"start: [\"a\"\n] \"b\" ~ 2 \"c\" ~ 1..2", {"abbc", "bbcc"}, {"ab-", "bbb"}},
      {"start: %json {\"enum\":\n [1]} root\n!root: \"]\"..\"_\" <end>", {"1]<end>", "1^<end>"}, {"2", "1a"}},
      {"start: \"a\\n\\u00e9\"\n", {"a\n\u00e9"}, {"b"}},
  };
  for (const LarkGolden& golden : goldens) {
    const auto automaton = MakeAutomaton(Constraint::Kind::kGrammar, golden.grammar);
    ASSERT_NE(automaton, nullptr);
    for (const std::string& text : golden.whole)
      EXPECT_TRUE(Matches(automaton, text)) << golden.grammar << "\n" << text;
    for (const std::string& text : golden.none) {
      EXPECT_EQ(FitOf(automaton, text), Fit::kNone) << golden.grammar << "\n" << text;
    }
  }
}

TEST(LarkTest, IsNotGbnf) {
  for (const char* text : {"start: \"a\"", "# root ::= x\n\n start : a", "%llguidance {}", "// x\nroot ::= y"}) {
    EXPECT_TRUE(IsLark(text)) << text;
  }
  for (const char* text : {"", "root ::= \":\"", "# start: x\nroot ::= y", "root"}) EXPECT_FALSE(IsLark(text)) << text;
}

TEST(LarkTest, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"start: x\n%ignore \" \"", "line 2: %ignore is not supported"},
      {"%import common.WS\nstart: WS", "line 1: %import is not supported"},
      {"start: x\nx[max_tokens=3]: \"a\"", "line 2: a rule may have the attribute capture only"},
      {"start: x\n\nx: \"a\"i", "line 3: a literal may have no flags"},
      {"start: /a/s", "line 1: an expression may have no flags"},
      {"start: (\"a\"", "line 1: ')' is missing"},
      {"start: \"a\")", "line 1: ')' closes nothing"},
      {"start: \"a", "line 1: expected '\"'"},
      {"start: \"a\" ~ x", "line 1: expected a count"},
      {"start: \"a\"..x", "line 1: expected a literal after '..'"},
      {"start: <x", "line 1: expected '>'"},
      {"start: x\n\n# more\ny: x", "line 1: rule 'x' is not defined"},
      {"start: x\nx \"a\"", "line 2: expected ':' after 'x'"},
      {"x: \"a\"", "has no rule 'start'"},
      {"start: \"a\"\n:", "line 2: expected the name of a rule"},
      {"start: &", "line 1: expected a literal, an expression or the name of a rule, not '&'"},
      {"start: \"\xff\"", "invalid UTF-8"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_THAT(ErrorOf(Constraint::Kind::kGrammar, text), HasSubstr(message)) << text;
}

}  // namespace
}  // namespace moestro::text::grammar
