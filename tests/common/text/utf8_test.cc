#include "common/text/utf8.h"

#include <vector>

#include "common/text/utf8_assembler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::text {
namespace {

TEST(Utf8Test, EveryScalarValueReadsBackAsWritten) {
  for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point == 0xD800) code_point = 0xE000;
    std::string text;
    AppendUtf8(code_point, &text);
    const Utf8Step step = ReadUtf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCodePoint);
    ASSERT_EQ(step.code_point, code_point);
    ASSERT_EQ(step.length, static_cast<int>(text.size()));
    ASSERT_EQ(Utf8Length(text[0]), step.length);
  }
}

TEST(Utf8Test, FindsTheFirstIllFormedByte) {
  EXPECT_EQ(FindInvalidUtf8("a中😀\u00E9"), std::nullopt);
  for (const std::string bad : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE4\xB8", "\xE4\xB8x"}) {
    EXPECT_EQ(FindInvalidUtf8("ok" + bad), 2u);
  }
}

// Unicode chapter 3, table 3-8: one U+FFFD for each maximal ill-formed subpart, for any cuts.
TEST(Utf8AssemblerTest, ReplacesMaximalSubparts) {
  const std::string bytes = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64\xED\xA0\x80\xF4\x91\xC0\xAF\xF0\x9F";
  const std::string r(kReplacementCharacter);
  const std::string expected = "a" + r + r + r + "b" + r + "c" + r + r + "d" + r + r + r + r + r + r + r + r;
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Utf8Assembler assembler;
    std::string text = assembler.Push(bytes.substr(0, cut));
    text += assembler.Push(bytes.substr(cut));
    text += assembler.Flush();
    EXPECT_EQ(text, expected) << cut;
  }
}

}  // namespace
}  // namespace moestro::text
