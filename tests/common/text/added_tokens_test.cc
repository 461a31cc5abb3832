#include "common/text/added_tokens.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::text {
namespace {

using Segments = std::vector<std::pair<std::string, int>>;

Segments Split(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::vector<AddedTokenMatcher::Segment> found;
  AddedTokenMatcher(tokens).Split(text, &found);
  Segments segments;
  for (const auto& segment : found) segments.emplace_back(segment.text, segment.id);
  return segments;
}

TEST(AddedTokensTest, TakesTheLongestOfTheLeftmost) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "ab"}, {.id = 2, .content = "abcd"}, {.id = 3, .content = "bc"}};
  EXPECT_EQ(Split(tokens, "xabcabcdbc"), (Segments{{"x", -1}, {"ab", 1}, {"c", -1}, {"abcd", 2}, {"bc", 3}}));
}

TEST(AddedTokensTest, StripsUnicodeSpace) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "L", .lstrip = true},
                                          {.id = 2, .content = "R", .rstrip = true}};
  EXPECT_EQ(Split(tokens, "a \u3000L b R\u2003\n c"),
            (Segments{{"a", -1}, {" \u3000L", 1}, {" b ", -1}, {"R\u2003\n ", 2}, {"c", -1}}));
  EXPECT_EQ(Split(tokens, "R  L"), (Segments{{"R  ", 2}, {"L", 1}}));
}

TEST(AddedTokensTest, ASpaceTokenAfterOneThatSwallowedItStillCounts) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "R", .rstrip = true}, {.id = 2, .content = "\n"}};
  EXPECT_EQ(Split(tokens, "R\n x"), (Segments{{"R\n ", 1}, {"\n", 2}, {"x", -1}}));
}

TEST(AddedTokensTest, SingleWordNeedsBoundaries) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "w", .single_word = true}};
  EXPECT_EQ(Split(tokens, "w.w"), (Segments{{"w", 1}, {".", -1}, {"w", 1}}));
  for (const std::string text : {"wa", "_w", "中w", "w\u0301", "w\u200D", "1w"}) {
    EXPECT_EQ(Split(tokens, text), (Segments{{text, -1}}));
  }
}

TEST(AddedTokensTest, NothingToFind) {
  EXPECT_EQ(Split({}, "abc"), (Segments{{"abc", -1}}));
  EXPECT_EQ(Split({{.id = 1, .content = "x"}}, ""), Segments{});
}

}  // namespace
}  // namespace moestro::text
