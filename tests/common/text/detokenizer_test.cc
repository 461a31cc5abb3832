#include "common/text/detokenizer.h"

#include <string>
#include <vector>

#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  // The token of a byte; its spelling is the token with these bytes.
  int32_t ByteToken(unsigned char byte) const {
    for (int32_t id = 0; id < tokenizer_->size(); ++id) {
      if (tokenizer_->DecodeBytes(id) == std::string(1, static_cast<char>(byte))) return id;
    }
    ADD_FAILURE() << "no token for byte " << int{byte};
    return -1;
  }

  // The results of pushing each byte of the text as a separate token.
  std::vector<std::string> PushBytes(IncrementalDetokenizer& detokenizer, const std::string& bytes) const {
    std::vector<std::string> pieces;
    for (const char byte : bytes) pieces.push_back(detokenizer.Push(ByteToken(static_cast<unsigned char>(byte))));
    return pieces;
  }

  const std::unique_ptr<const Tokenizer> tokenizer_ = MakeTokenizer(ReadGoldenJson("tokenizer.json"));
  const std::string replacement_{kReplacementCharacter};
};

TEST_F(DetokenizerTest, HoldsBackSplitCodePoints) {
  IncrementalDetokenizer detokenizer(*tokenizer_, /*skip_special=*/false);
  EXPECT_THAT(PushBytes(detokenizer, "a😀é中"), testing::ElementsAre("a", "", "", "", "😀", "", "é", "", "", "中"));
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(DetokenizerTest, ReplacesAndResumes) {
  IncrementalDetokenizer detokenizer(*tokenizer_, /*skip_special=*/false);
  EXPECT_THAT(PushBytes(detokenizer, "\xF0\x9Fx\x80\xFF\xE4\xE4\xB8\xAD"),
              testing::ElementsAre("", "", replacement_ + "x", replacement_, replacement_, "", replacement_, "", "中"));
  EXPECT_THAT(PushBytes(detokenizer, "\xF0\x9F"), testing::ElementsAre("", ""));
  EXPECT_EQ(detokenizer.Flush(), replacement_);
  EXPECT_THAT(PushBytes(detokenizer, "y"), testing::ElementsAre("y"));
}

TEST_F(DetokenizerTest, AGenuineReplacementCharacterIsComplete) {
  IncrementalDetokenizer detokenizer(*tokenizer_, /*skip_special=*/false);
  EXPECT_THAT(PushBytes(detokenizer, replacement_), testing::ElementsAre("", "", replacement_));
}

TEST_F(DetokenizerTest, SkipsSpecialTokensByOption) {
  IncrementalDetokenizer visible(*tokenizer_, /*skip_special=*/false);
  IncrementalDetokenizer hidden(*tokenizer_, /*skip_special=*/true);
  EXPECT_EQ(visible.Push(1), "<｜end▁of▁sentence｜>");
  EXPECT_EQ(hidden.Push(1), "");
  const int32_t think = tokenizer_->TokenId("<think>").value();
  EXPECT_EQ(hidden.Push(think), "<think>");
  EXPECT_EQ(hidden.Push(123456), "");
}

TEST_F(DetokenizerTest, AddsUpToTheWholeText) {
  for (const auto& golden : ReadGoldenJson("decode.json")) {
    for (const bool skip_special : {false, true}) {
      IncrementalDetokenizer detokenizer(*tokenizer_, skip_special);
      std::string text;
      for (const int32_t id : golden["ids"].get<std::vector<int32_t>>()) {
        const std::string piece = detokenizer.Push(id);
        EXPECT_EQ(FindInvalidUtf8(piece), std::nullopt);
        text += piece;
      }
      text += detokenizer.Flush();
      EXPECT_EQ(text, golden[skip_special ? "skipped" : "text"].get<std::string>()) << golden["ids"];
    }
  }
}

}  // namespace
}  // namespace moestro::text
