#include "common/text/grammar/pattern.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/common/text/grammar/grammar_fixture.h"

namespace moestro::text::grammar {
namespace {

using nlohmann::json;
using testing::HasSubstr;
constexpr Constraint::Kind kRegex = Constraint::Kind::kRegex;

struct PatternGolden {
  const char* pattern;
  std::vector<std::string> matches;
  std::vector<std::string> others;
};

TEST(PatternTest, IsTheWholeText) {
  const std::vector<PatternGolden> goldens = {
      {"ab|cd", {"ab", "cd"}, {"abd", "xab", ""}},
      {"^a.c$", {"abc", "a\u20acc"}, {"a\nc", "abcd"}},
      {"^a$|b", {"a", "b"}, {"ab"}},
      {R"([\w.-]+@\d{2,3})", {"a.b-c@12", "_@123"}, {"@12", "a@1234"}},
      {R"(\S\s\D\W)", {"a b-", "x\t\u00e9\u00e9"}, {"a b", "a 1-"}},
      {R"((?:a|b)*?(c)+(?<name>d)?)", {"c", "abbacd", "cc"}, {"ab", "cdd"}},
      {R"(a(?P<year>\d{2})$)", {"a12"}, {"a1", "aP<year>12"}},
      {R"(\x41\u00e9\u{1F600}\uD83D\uDE00\.\/)", {"A\u00e9\U0001F600\U0001F600./"}, {"A"}},
      {R"([^a-c\d\]])", {"d", "\u20ac", "["}, {"a", "1", "]"}},
      {R"([\b\-x-])", {"\b", "-", "x"}, {"b"}},
      {"", {""}, {"a"}},
      {"(a|)b{0}c{2,}", {"acc", "cc"}, {"bcc", "c"}},
  };
  for (const PatternGolden& golden : goldens) {
    const auto automaton = MakeAutomaton(kRegex, golden.pattern);
    for (const std::string& text : golden.matches)
      EXPECT_TRUE(Matches(automaton, text)) << golden.pattern << " " << text;
    for (const std::string& text : golden.others)
      EXPECT_FALSE(Matches(automaton, text)) << golden.pattern << " " << text;
  }
}

// A schema's pattern is about the value of a string, and may match anywhere in it.
TEST(PatternTest, OfASchemaMatchesAnywhereInTheValue) {
  const std::vector<PatternGolden> goldens = {
      {"b", {"b", "abc", "\"b\\\n\u20ac"}, {"a", ""}},
      {"^b", {"b", "bc"}, {"ab"}},
      {"b$", {"b", "ab"}, {"bc"}},
      {"^a$|b", {"a", "xbx"}, {"xa"}},
      {R"(^["\\]\t$)", {"\"\t", "\\\t"}, {"x\t"}},
      {R"(^\x01$)", {"\x01"}, {"1"}},
  };
  for (const PatternGolden& golden : goldens) {
    const json schema = {{"type", "string"}, {"pattern", golden.pattern}};
    const auto automaton = MakeAutomaton(Constraint::Kind::kJsonSchema, schema.dump());
    for (const std::string& value : golden.matches) {
      EXPECT_TRUE(Matches(automaton, json(value).dump())) << golden.pattern << " " << value;
    }
    for (const std::string& value : golden.others) {
      EXPECT_FALSE(Matches(automaton, json(value).dump())) << golden.pattern << " " << value;
    }
  }
}

TEST(PatternTest, RefusesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(?=b)", "look-around"},
      {"(?<=b)a", "look-around"},
      {"(?i)a", "look-around and flags"},
      {"(?P<n>a)(?P=n)", "look-around and flags"},
      {R"((a)\1)", "\\1 is not supported"},
      {R"(a\b)", "\\b is not supported"},
      {R"(\p{L})", "\\p is not supported"},
      {"a^b", "'^' is supported at the beginning"},
      {"(a$)", "'$' is supported at the end"},
      {"a$b", "nothing can follow '$'"},
      {"a**", "possessive and repeated"},
      {"*a", "nothing to repeat"},
      {"a{2", "expected a count"},
      {"a{3,2}", "fewer than the least"},
      {"a{99999}", "more than 16384"},
      {"(a", "'(' without ')'"},
      {"a)", "')' without '('"},
      {"[a", "'[' without ']'"},
      {"[z-a]", "malformed range"},
      {"a\\", "'\\' at the end"},
      {R"(\ud800)", "malformed \\u"},
      {"]", "must be written with"},
  };
  for (const auto& [pattern, message] : cases) EXPECT_THAT(ErrorOf(kRegex, pattern), HasSubstr(message)) << pattern;
}

}  // namespace
}  // namespace moestro::text::grammar
