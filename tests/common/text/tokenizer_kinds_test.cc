// Tokenizers of every published kind against the reference libraries: tests/golden/text/kinds.py.
#include <string>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr Tokenizer::EncodeOptions kUntrusted = {.add_special_tokens = false, .parse_special_tokens = false};

class TokenizerKindTest : public testing::TestWithParam<const char*> {
 protected:
  TokenizerKindTest() : golden_(ReadGoldenJson(std::string("kinds/") + GetParam() + ".json")) {
    const auto file = [&](const char* name) { return golden_["files"].value(name, ""); };
    const std::string document = file("tokenizer.json");
    const std::string ranks = file("tiktoken.model");
    const std::string config = file("tokenizer_config.json");
    auto tokenizer =
        Tokenizer::Create({.tokenizer_json = document, .tiktoken_ranks = ranks, .tokenizer_config_json = config});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (tokenizer.ok()) tokenizer_ = *std::move(tokenizer);
  }

  Ids PlainIds(size_t text) const {
    if (!golden_["plain"][text].is_null()) return golden_["plain"][text].get<Ids>();
    const Ids ids = golden_["parsed"][text].get<Ids>();
    return {ids.begin() + golden_["begins"].get<int>(), ids.end()};
  }

  const json golden_;
  const std::vector<std::string> texts_ = ReadGoldenJson("kinds/texts.json").get<std::vector<std::string>>();
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_P(TokenizerKindTest, EncodesAsTheReference) {
  ASSERT_NE(tokenizer_, nullptr);
  ASSERT_EQ(golden_["parsed"].size(), texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    EXPECT_EQ(tokenizer_->Encode(texts_[i], {}).value(), golden_["parsed"][i].get<Ids>()) << json(texts_[i]);
    EXPECT_EQ(tokenizer_->Encode(texts_[i], kUntrusted).value(), PlainIds(i)) << json(texts_[i]);
  }
}

TEST_P(TokenizerKindTest, DecodesAsTheReference) {
  ASSERT_NE(tokenizer_, nullptr);
  for (const json& golden : golden_["decoded"]) {
    const Ids ids = golden["ids"].get<Ids>();
    const std::string skipped = tokenizer_->Decode(ids, /*skip_special=*/true);
    EXPECT_EQ(skipped, golden.value("skipped", skipped)) << golden["ids"];
    const std::string kept = tokenizer_->Decode(ids, /*skip_special=*/false);
    EXPECT_EQ(kept, golden.value("kept", kept)) << golden["ids"];
    IncrementalDetokenizer detokenizer(*tokenizer_, /*skip_special=*/true);
    for (int pass = 0; pass < 2; ++pass) {  // a second text begins like the first
      std::string streamed;
      for (const int32_t id : ids) streamed += detokenizer.Push(id);
      EXPECT_EQ(streamed + detokenizer.Flush(), skipped) << golden["ids"];
    }
  }
}

TEST_P(TokenizerKindTest, UntrustedTextNeverBecomesAControlToken) {
  ASSERT_NE(tokenizer_, nullptr);
  Ids control;
  std::string text;
  for (const AddedToken& token : tokenizer_->added_tokens()) {
    control.push_back(token.id);
    text += token.content + " " + token.content;
  }
  ASSERT_FALSE(control.empty());
  const Ids ids = tokenizer_->Encode(text, kUntrusted).value();
  EXPECT_FALSE(ids.empty());
  for (const int32_t id : control) EXPECT_THAT(ids, testing::Not(testing::Contains(id)));
}

TEST_P(TokenizerKindTest, NoTextHasMoreBytesThanItsTokensAllow) {
  ASSERT_NE(tokenizer_, nullptr);
  const bool drops_text = std::string(GetParam()) == "converted";
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Ids ids = PlainIds(i);
    const std::string text = drops_text ? tokenizer_->Decode(ids, /*skip_special=*/false) : texts_[i];
    EXPECT_LE(text.size(), ids.size() * tokenizer_->longest_token_bytes()) << json(text);
  }
}

// A text of one word, of one character, and without a space: the cost must not grow faster than the text.
TEST_P(TokenizerKindTest, LongTextsTakeLinearTime) {
  ASSERT_NE(tokenizer_, nullptr);
  constexpr size_t kSize = 1 << 20;
  std::string marks = "e", words;
  while (marks.size() < kSize) marks += "\u0301\u0327";
  while (words.size() < kSize) words += "the quick 中文 ";
  for (const std::string& text :
       {std::string(kSize, 'a'), std::string(kSize, ' '), std::string(kSize, '<'), marks, words}) {
    int looks = 0;
    const auto count = [&] { return ++looks, absl::OkStatus(); };
    const auto ids = tokenizer_->Encode(text, kUntrusted, {.check = count});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_GE(ids->size(), text.size() / 3 / tokenizer_->longest_token_bytes());
    EXPECT_GE(looks, 1);
  }
  int looks = 0;
  const auto leave = [&] { return ++looks < 5 ? absl::OkStatus() : absl::CancelledError("gone"); };
  EXPECT_EQ(tokenizer_->Encode(words, kUntrusted, {.check = leave}).status().message(), "gone");
  EXPECT_EQ(tokenizer_->Encode(words, kUntrusted, {.max_tokens = 100}).status().code(), absl::StatusCode::kOutOfRange);
}

INSTANTIATE_TEST_SUITE_P(Published, TokenizerKindTest,
                         testing::Values("qwen", "llama3", "gpt_oss", "deepseek_v2", "converted", "kimi_k2", "dbrx",
                                         "mixtral", "mixtral_first", "mixtral_always", "mixtral_never", "llama",
                                         "llama_bare"),
                         [](const auto& kind) { return std::string(kind.param); });

// Only the text's very first piece gets the space that "first" asks for.
TEST(TokenizerContinuationTest, AContinuationGetsNoSpaceOfTheStart) {
  const json golden = ReadGoldenJson("kinds/mixtral_first.json");
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = golden["files"]["tokenizer.json"].get<std::string>()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t spaced = (*tokenizer)->TokenId("▁t").value();
  const int32_t bare = (*tokenizer)->TokenId("t").value();
  Tokenizer::EncodeOptions options = kUntrusted;
  EXPECT_THAT((*tokenizer)->Encode("t", options).value(), testing::ElementsAre(spaced));
  options.at_start = false;
  EXPECT_THAT((*tokenizer)->Encode("t", options).value(), testing::ElementsAre(bare));
}

}  // namespace
}  // namespace moestro::text
