#include "common/text/regex.h"

#include <map>
#include <string>
#include <vector>

#include "common/text/oniguruma.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/tokenizer_pipeline_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using Pieces = std::vector<std::string_view>;
using Patterns = std::map<std::string, std::vector<std::string>>;

// The patterns of each tokenizer with which the reference has split texts, by name.
Patterns ReferencePatterns() {
  const nlohmann::json golden = ReadGoldenJson("split.json");
  Patterns patterns;
  for (const auto& set : golden["sets"]) set["patterns"].get_to(patterns[set["name"].get<std::string>()]);
  return patterns;
}

absl::StatusOr<PreTokenizer> Isolating(const std::vector<std::string>& patterns) {
  std::vector<SplitStep> steps;
  for (const std::string& pattern : patterns) steps.push_back({pattern});
  return PreTokenizer::Create(steps);
}

Pieces SplitWith(const std::vector<std::string>& patterns, std::string_view text) {
  const auto pre_tokenizer = Isolating(patterns);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  if (!pre_tokenizer.ok()) return {};
  const auto pieces = pre_tokenizer->Split(text);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return pieces.ok() ? *pieces : Pieces{};
}

TEST(RegexTest, SplitsAsTheReference) {
  const nlohmann::json golden = ReadGoldenJson("split.json");
  const auto texts = golden["texts"].get<std::vector<std::string>>();
  for (const auto& set : golden["sets"]) {
    const auto pre_tokenizer = Isolating(set["patterns"].get<std::vector<std::string>>());
    ASSERT_TRUE(pre_tokenizer.ok()) << set["name"] << pre_tokenizer.status();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto pieces = pre_tokenizer->Split(texts[i]);
      ASSERT_TRUE(pieces.ok()) << pieces.status();
      std::vector<size_t> lengths;
      for (const std::string_view piece : *pieces) lengths.push_back(piece.size());
      EXPECT_EQ(lengths, set["lengths"][i].get<std::vector<size_t>>()) << set["name"] << " " << golden["texts"][i];
    }
  }
}

TEST(RegexTest, Gpt2sPatternIsTheTestedOne) {
  EXPECT_THAT(ReferencePatterns()["gpt2"], testing::ElementsAre(kGpt2Pattern));
}

TEST(RegexTest, DeepSeekPieces) {
  const std::vector<std::string> patterns = ReferencePatterns()["deepseek_v3"];
  ASSERT_EQ(patterns.size(), 3u);
  EXPECT_THAT(SplitWith(patterns, "I've 12345 apples, 我想在apple工作1314 \n\n  x_y  (z)."),
              testing::ElementsAre("I", "'ve", " ", "123", "45", " apples", ",", " ", "我想在", "apple", "工作", "131",
                                   "4", " \n\n", " ", " x", "_y", " ", " (", "z", ")."));
}

// White space is Unicode's: U+0085 is included, U+180E and U+200B are not.
TEST(RegexTest, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(SplitWith({"\\s+"}, "a\u0085b\u180Ec\u200Bd\u2003e"),
              testing::ElementsAre("a", "\u0085", "b\u180Ec\u200Bd", "\u2003", "e"));
  EXPECT_THAT(SplitWith({"[^\\S]"}, "a\u0085\u180E"), testing::ElementsAre("a", "\u0085", "\u180E"));
}

// An empty match gives no piece, but ends the gap before it.
TEST(RegexTest, EmptyMatchesAdvanceByCodePoints) {
  EXPECT_THAT(SplitWith({"x*"}, "中axxb"), testing::ElementsAre("中", "a", "xx", "b"));
  EXPECT_THAT(SplitWith({}, "ab"), testing::ElementsAre("ab"));
  EXPECT_THAT(SplitWith({"a"}, ""), testing::IsEmpty());
}

TEST(RegexTest, HostileTextEndsInAnError) {
  const auto regex = Regex::Compile("(a|aa)+$");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(100, 'a') + "b";
  const std::vector<std::string_view> texts = {text};
  EXPECT_EQ(regex->Split(texts).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegexTest, StopsAtTheLimitOfPieces) {
  const auto regex = Regex::Compile("a");
  const std::vector<std::string_view> texts = {"aba", "cc", "a"};
  EXPECT_THAT(*regex->Split(texts, SplitKeeps::kAll, 5), testing::ElementsAre("a", "b", "a", "cc", "a"));
  for (size_t most = 0; most < 5; ++most) {
    EXPECT_EQ(regex->Split(texts, SplitKeeps::kAll, most).status().code(), absl::StatusCode::kOutOfRange) << most;
  }
}

// One group repetition for each of a quarter of a million characters: more state than fits the JIT's stack.
TEST(RegexTest, LongGroupsFallBackToTheInterpreter) {
  const std::string text(1 << 18, 'b');
  EXPECT_THAT(SplitWith({"[[a-z]&&[^a]]+"}, text), testing::ElementsAre(text));
}

struct Translation {
  std::string_view oniguruma;
  std::string_view pcre2;
};

TEST(OnigurumaTest, TranslatesWhereTheDialectsDiffer) {
  for (const auto& [pattern, expected] : std::vector<Translation>{
           {"a(?:b|c)*?", "a(?:b|c)*?"},
           {"\\s\\S[^\\s]", "\\p{White_Space}\\P{White_Space}[^\\p{White_Space}]"},
           {"\\h\\H[\\h_]", "[0-9A-Fa-f][^0-9A-Fa-f][0-9A-Fa-f_]"},
           {"\\p{Han}\\p{^L}\\P{Han}", "\\p{sc:Han}\\P{L}\\P{sc:Han}"},
           {"\\p{^Han}\\P{^Lu}", "\\P{sc:Han}\\p{Lu}"},
           {"[a&&b]", "(?:(?=[a])[b])"},
           {"[ab[cd]]", "(?:[cd]|[ab])"},
           {"[^a[b]]", "(?:(?!(?:[b]|[a]))(?s:.))"},
           {"[^[^a]]", "(?:(?![^a])(?s:.))"},
           {"[a&&^b]", "(?:(?=[a])[\\^b])"},
           {"x{,3}y{2}z{1,}{", "x{0,3}y{2}z{1,}\\{"},
           {"\\u4e2d\\x{1F600}\\x41\\v", "\\x{4e2d}\\x{1F600}\\x{41}\\x0B"},
           {"\\中\\.[\\]\\-]", "中\\.[\\]\\-]"},
       }) {
    const auto translated = OnigurumaToPcre2(pattern);
    ASSERT_TRUE(translated.ok()) << pattern << ": " << translated.status();
    EXPECT_EQ(*translated, expected);
  }
}

TEST(OnigurumaTest, RefusesWhatItDoesNotTranslate) {
  for (const std::string_view pattern : {"\\w", "\\b", "[\\W]", "(?<name>a)", "(?i)a", "(?m:.)", "[[:alpha:]]",
                                         "a{1,2}+", "\\1", "\\xE4", "\\R", "[\\H]", "(?#comment)", "\\Q"}) {
    EXPECT_EQ(OnigurumaToPcre2(pattern).status().code(), absl::StatusCode::kUnimplemented) << pattern;
  }
}

TEST(OnigurumaTest, RefusesMalformedPatterns) {
  for (const std::string& pattern : std::vector<std::string>{
           "[a", "[]", "[a&&]", "\\", "\\p", "\\p{", "\\p{}", "\\p{a/b}", "\\u12", "\\x{", "\\x{zz}", "\xFF", "a)",
           "(a", "*", "\\p{NoSuchProperty}", "[z-a]", std::string(1000, '['), std::string(1000, '(')}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
}

}  // namespace
}  // namespace moestro::text
