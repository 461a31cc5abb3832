#include "common/text/json/surrogates.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace moestro::text {
namespace {

std::string Replaced(std::string json) {
  ReplaceLoneSurrogates(json);
  return json;
}

TEST(SurrogatesTest, HalvesBecomeReplacementCharacters) {
  EXPECT_EQ(Replaced(R"("a\ud83d")"), R"("a\ufffd")");
  EXPECT_EQ(Replaced(R"("\uDE00b")"), R"("\ufffdb")");
  EXPECT_EQ(Replaced(R"("\ude00\ud83d")"), R"("\ufffd\ufffd")");
  EXPECT_EQ(Replaced(R"("\ud83d\ud83d\ude00")"), R"("\ufffd\ud83d\ude00")");
  EXPECT_EQ(Replaced(R"("\ud83d\n\ude00")"), R"("\ufffd\n\ufffd")");
  EXPECT_EQ(Replaced(R"({"\ud83d": 1})"), R"({"\ufffd": 1})");
  EXPECT_TRUE(nlohmann::json::accept(Replaced(R"(["\udbff", "\udc00", "\ud800\\udc00"])")));
}

TEST(SurrogatesTest, EverythingElseStays) {
  for (const char* text : {R"("\ud83d\ude00 \u00e9 \uFFFD \ud7ff \ue000")", R"("\\ud83d")", R"("\\\\ude00")", "", "\\",
                           R"("\u)", R"("\ud8)", R"("\ud83")", R"("\uzzzz")", "\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(Replaced(text), text);
  }
  EXPECT_EQ(Replaced(R"("\\\ud83d")"), R"("\\\ufffd")");
}

}  // namespace
}  // namespace moestro::text
