#include "common/text/normalizer.h"

#include <string>
#include <vector>

#include "common/text/utf8.h"
#include "gtest/gtest.h"

namespace moestro::text {
namespace {

using Kind = NormalizerStep::Kind;

TEST(NfcTest, ComposesOrdersAndKeeps) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"plain ASCII\n", "plain ASCII\n"},
      {std::string("a\0b\u0301", 5), std::string("a\0b\u0301", 5)},
      {"e\u0301", "é"},
      {"Xe\u0301e", "Xée"},
      {"e\u0327\u0301", "\u0229\u0301"},
      {"a\u0301\u0323", "ạ\u0301"},  // marks in canonical order, by class
      {"a\u0308\u0301", "ä\u0301"},  // the first mark of a class blocks the second
      {"\u1112\u1161\u11ab", "한"},  // Hangul by arithmetic
      {"\uac00\u11a8", "각"},
      {"\u212b\u2126\u212a", "ÅΩK"},  // singletons
      {"\u0958", "\u0915\u093c"},     // excluded from composition
      {"\u0344", "\u0308\u0301"},
      {"\u1fbe\u0308\u0301", "\u0390"},
      {"\ufb01 \uff21 \u00bd", "\ufb01 \uff21 \u00bd"},  // compatibility forms stay
      {"👩\u200d👩 中文", "👩\u200d👩 中文"},
      {"\u0301e", "\u0301e"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Nfc(text), expected) << text;
}

TEST(NfcTest, IsIdempotentAndKeepsItsBounds) {
  size_t composed = 0;
  for (char32_t c = 0x80; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    text = "x" + text + "\u0308\u0301y";
    const std::string once = Nfc(text);
    EXPECT_EQ(Nfc(once), once) << text;
    EXPECT_LE(text.size(), kMaxNfcShrink * once.size());
    EXPECT_LE(once.size(), kMaxNfcGrowth * text.size());
    EXPECT_FALSE(FindInvalidUtf8(once).has_value());
    composed += once != text;
  }
  EXPECT_GT(composed, 1000u);
  EXPECT_EQ(Nfc("\u1fbe\u0308\u0301").size() * 7, std::string("\u1fbe\u0308\u0301").size() * 2);  // the worst ratio
}

// Ordering marks one swap at a time would take minutes.
TEST(NfcTest, LongRunsOfMarksTakeLittleTime) {
  std::string text = "e", expected;
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0327";
  expected = "\u0229";
  for (int i = 1; i < 200'000; ++i) expected += "\u0327";
  for (int i = 0; i < 200'000; ++i) expected += "\u0301";
  EXPECT_EQ(Nfc(text), expected);
}

TEST(NormalizerTest, AppliesItsStepsInOrder) {
  const Normalizer legacy({{Kind::kPrepend, "", "▁"}, {Kind::kReplace, " ", "▁"}});
  EXPECT_EQ(legacy.Apply("a b"), "▁a▁b");
  EXPECT_EQ(legacy.Apply(" "), "▁▁");
  EXPECT_EQ(legacy.Apply(""), "");
  EXPECT_EQ(legacy.max_shrink(), 1u);
  EXPECT_EQ(legacy.max_growth(), 3u);
  const Normalizer both({{Kind::kReplace, "ab", "e"}, {Kind::kNfc}});
  EXPECT_EQ(both.Apply("ab\u0301"), "é");
  EXPECT_EQ(both.max_shrink(), 2 * kMaxNfcShrink);
  EXPECT_TRUE(Normalizer({}).empty());
}

}  // namespace
}  // namespace moestro::text
