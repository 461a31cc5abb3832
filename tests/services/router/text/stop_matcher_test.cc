#include "services/router/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/text/utf8.h"

namespace moestro::router {
namespace {

struct Cut {
  std::string sent;
  std::string found;
};

// `text` in pieces that end at `ends`, whatever is held back included.
Cut Push(const std::vector<std::string>& stops, const std::string& text, const std::vector<size_t>& ends) {
  StopMatcher matcher(stops);
  Cut cut;
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string piece = matcher.Push(std::string_view(text).substr(begin, end - begin));
    EXPECT_FALSE(text::FindInvalidUtf8(piece)) << piece;
    cut.sent += piece;
    EXPECT_TRUE(text.starts_with(cut.sent));
    begin = end;
  }
  cut.sent += matcher.Push(std::string_view(text).substr(begin));
  cut.sent += matcher.Flush();
  EXPECT_EQ(matcher.Push("more"), matcher.found().empty() ? "more" : "");
  cut.found = matcher.found();
  return cut;
}

// The definition: the stop text that ends first; of those, the longest.
Cut Expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string found;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > found.size()) found = stop;
    }
    if (!found.empty()) return {text.substr(0, end - found.size()), found};
  }
  return {text, ""};
}

std::vector<size_t> Characters(const std::string& text) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < text.size();) ends.push_back(i += static_cast<size_t>(text::Utf8Length(text[i])));
  return ends;
}

void ExpectSame(const Cut& cut, const Cut& expected) {
  EXPECT_EQ(cut.sent, expected.sent);
  EXPECT_EQ(cut.found, expected.found);
}

TEST(StopMatcherTest, CutAtEveryByteOnceAndTwice) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"###"}, "an answer\n##\n### and more"},
      {{"\nUser:", "\nuser:"}, "text\nUse\nuser: hello"},
      {{"aab"}, "aaaaab"},
      {{"abab", "bab"}, "xabababx"},
      {{"abcd", "bc"}, "xabcdx"},
      {{"我想", "🦙"}, "我我想要🦙"},
      {{"🦙🦙"}, "🦙x🦙🦙🦙"},
      {{"never"}, "neve neve neve"},
      {{"same", "same"}, "the same"},
      {{"x"}, "x"},
      {{}, "no stop texts"},
  };
  for (const auto& [stops, text] : cases) {
    SCOPED_TRACE(text);
    const Cut expected = Expected(stops, text);
    const std::vector<size_t> ends = Characters(text);
    ExpectSame(Push(stops, text, ends), expected);
    for (const size_t first : ends) {
      for (const size_t second : ends) {
        if (first <= second) ExpectSame(Push(stops, text, {first, second}), expected);
      }
    }
  }
}

// Bytes, so that a piece may end inside a character: the caller does not do that, and nothing is lost if it does.
TEST(StopMatcherTest, RandomTextsOfTwoLetters) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t size = 1 + random() % most; text.size() < size;) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t count = 1 + random() % 4; stops.size() < count;) stops.push_back(word(7));
    const std::string text = word(30);
    const Cut expected = Expected(stops, text);
    found += !expected.found.empty();
    ExpectSame(Push(stops, text, {random() % (text.size() + 1)}), expected);
    std::vector<size_t> every(text.size());
    for (size_t i = 0; i < every.size(); ++i) every[i] = i + 1;
    ExpectSame(Push(stops, text, every), expected);
  }
  EXPECT_GT(found, 500);
  EXPECT_LT(found, 2900);
}

TEST(StopMatcherTest, KeepsWhatItFound) {
  StopMatcher matcher({"<end>"}, /*keeps=*/true);
  EXPECT_EQ(matcher.Push("a<en"), "a");
  EXPECT_EQ(matcher.Push("d>rest"), "<end>");
  EXPECT_EQ(matcher.Push("more") + matcher.Flush(), "");
  EXPECT_EQ(matcher.found(), "<end>");
}

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBeAStop) {
  StopMatcher matcher({"<end>", "<e!"});
  EXPECT_EQ(matcher.Push("a<"), "a");
  EXPECT_EQ(matcher.Push("e"), "");
  EXPECT_EQ(matcher.Push("x"), "<ex");
  EXPECT_EQ(matcher.Push("<e<en"), "<e");
  EXPECT_EQ(matcher.found(), "");
  EXPECT_EQ(matcher.Push("d>rest"), "");
  EXPECT_EQ(matcher.found(), "<end>");
  EXPECT_EQ(matcher.Flush(), "");
}

// Nothing is found, and every byte is a new beginning of all stop texts: a search that began anew for each would
// compare 16 * 255 bytes for each of a million.
TEST(StopMatcherTest, ManyLongStopsTakeLinearTime) {
  std::string stop(256, 'a');
  stop.back() = 'b';
  StopMatcher matcher(std::vector<std::string>(16, stop));
  size_t sent = 0;
  for (int i = 0; i < 1 << 20; ++i) sent += matcher.Push("a").size();
  EXPECT_EQ(sent, (1u << 20) - 255);
  EXPECT_EQ(matcher.Flush().size(), 255u);
}

}  // namespace
}  // namespace moestro::router
