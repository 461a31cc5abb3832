#include "common/text/tokenizer.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr Tokenizer::EncodeOptions kWithoutSpecial = {.add_special_tokens = false, .parse_special_tokens = true};
constexpr Tokenizer::EncodeOptions kPlain = {.add_special_tokens = false, .parse_special_tokens = false};

class TokenizerTest : public testing::Test {
 protected:
  static Ids Encode(const Tokenizer& tokenizer, const std::string& text, Tokenizer::EncodeOptions options) {
    absl::StatusOr<Ids> ids = tokenizer.Encode(text, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids{};
  }

  const json file_ = ReadGoldenJson("tokenizer.json");
  const std::unique_ptr<const Tokenizer> tokenizer_ = MakeTokenizer(file_);
};

TEST_F(TokenizerTest, EncodesAsTheReference) {
  for (const json& golden : ReadGoldenJson("encode.json")) {
    const auto text = golden["text"].get<std::string>();
    EXPECT_EQ(Encode(*tokenizer_, text, {}), golden["ids"].get<Ids>()) << golden["text"];
    EXPECT_EQ(Encode(*tokenizer_, text, kWithoutSpecial), golden["without_special"].get<Ids>()) << golden["text"];
    EXPECT_EQ(Encode(*tokenizer_, text, kPlain), golden["plain"].get<Ids>()) << golden["text"];
  }
}

TEST_F(TokenizerTest, EncodesWithTheGpt2RegexAsTheReference) {
  json changed = file_;
  changed["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  const auto tokenizer = MakeTokenizer(changed);
  for (const json& golden : ReadGoldenJson("encode.json")) {
    EXPECT_EQ(Encode(*tokenizer, golden["text"].get<std::string>(), kWithoutSpecial), golden["gpt2"].get<Ids>())
        << golden["text"];
  }
}

TEST_F(TokenizerTest, IgnoreMergesTakesWholePiecesAsTheReference) {
  json changed = file_;
  changed["model"]["ignore_merges"] = true;
  changed["model"]["merges"] = json::array();
  const auto tokenizer = MakeTokenizer(changed);
  for (const json& golden : ReadGoldenJson("encode.json")) {
    EXPECT_EQ(Encode(*tokenizer, golden["text"].get<std::string>(), kWithoutSpecial),
              golden["ignore_merges"].get<Ids>())
        << golden["text"];
  }
}

TEST_F(TokenizerTest, StopsAtTheLimitOfTokens) {
  for (const json& golden : ReadGoldenJson("encode.json")) {
    const auto text = golden["text"].get<std::string>();
    const size_t count = golden["ids"].size();
    EXPECT_EQ(*tokenizer_->Encode(text, {}, {.max_tokens = count}), golden["ids"].get<Ids>()) << golden["text"];
    if (count == 0) continue;
    const absl::Status status = tokenizer_->Encode(text, {}, {.max_tokens = count - 1}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << golden["text"] << ": " << status;
  }
}

TEST_F(TokenizerTest, StopsAtTheLimitOfAPiece) {
  const std::string text = "word " + std::string(1000, 'a') + " word";
  EXPECT_TRUE(tokenizer_->Encode(text, {}, {.max_piece_bytes = 1001}).ok());
  const absl::Status status = tokenizer_->Encode(text, {}, {.max_piece_bytes = 1000}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1001 bytes without a break between words; at most 1000"));
}

TEST_F(TokenizerTest, AsksItsCheckNowAndThen) {
  std::string text;
  while (text.size() < 1 << 20) text += "word ";
  int looks = 0;
  const auto count = [&] { return ++looks, absl::OkStatus(); };
  EXPECT_TRUE(tokenizer_->Encode(text, {}, {.check = count}).ok());
  EXPECT_GE(looks, 16);
  looks = 0;
  const auto leave = [&] { return ++looks < 5 ? absl::OkStatus() : absl::CancelledError("gone"); };
  EXPECT_EQ(tokenizer_->Encode(text, {}, {.check = leave}).status().message(), "gone");
  EXPECT_EQ(looks, 5);
}

TEST_F(TokenizerTest, BothSpellingsOfMergesMeanTheSame) {
  json changed = file_;
  json& merges = changed["model"]["merges"];
  for (json& merge : merges) {
    if (merge.is_array()) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
    }
  }
  const auto tokenizer = MakeTokenizer(changed);
  for (const json& golden : ReadGoldenJson("encode.json")) {
    EXPECT_EQ(Encode(*tokenizer, golden["text"].get<std::string>(), {}), golden["ids"].get<Ids>());
  }
}

TEST_F(TokenizerTest, DecodesAsTheReference) {
  for (const json& golden : ReadGoldenJson("decode.json")) {
    const Ids ids = golden["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->Decode(ids, /*skip_special=*/false), golden["text"].get<std::string>()) << golden["ids"];
    EXPECT_EQ(tokenizer_->Decode(ids, /*skip_special=*/true), golden["skipped"].get<std::string>()) << golden["ids"];
  }
}

TEST_F(TokenizerTest, TextSurvivesTheRoundTrip) {
  for (const json& golden : ReadGoldenJson("encode.json")) {
    const auto text = golden["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->Decode(Encode(*tokenizer_, text, kPlain), /*skip_special=*/false), text);
  }
}

TEST_F(TokenizerTest, NoIdOfPlainTextHasMoreBytesThanTheLongestToken) {
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer_->size(); ++id) longest = std::max(longest, tokenizer_->DecodeBytes(id).size());
  EXPECT_EQ(tokenizer_->longest_token_bytes(), longest);
  for (const json& golden : ReadGoldenJson("encode.json")) {
    const auto text = golden["text"].get<std::string>();
    EXPECT_LE(text.size(), golden["plain"].get<Ids>().size() * longest) << golden["text"];
  }
}

TEST_F(TokenizerTest, UntrustedTextNeverBecomesAControlToken) {
  std::string text;
  Ids control;
  for (const json& token : file_["added_tokens"]) {
    text += token["content"].get<std::string>();
    control.push_back(token["id"].get<int32_t>());
  }
  EXPECT_EQ(Encode(*tokenizer_, text, kWithoutSpecial), control);
  for (const bool ignore_merges : {false, true}) {
    json changed = file_;
    changed["model"]["ignore_merges"] = ignore_merges;
    changed["model"]["vocab"]["solo"] = tokenizer_->TokenId("solo").value();
    const auto tokenizer = MakeTokenizer(changed);
    const Ids ids = Encode(*tokenizer, text, kPlain);
    EXPECT_THAT(ids, testing::Each(testing::Not(testing::AnyOfArray(control)))) << ignore_merges;
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/true), text);
  }
}

TEST_F(TokenizerTest, AddsWhatTheConfigAsksForOnce) {
  TokenizerConfig config;
  config.bos_token = "<｜begin▁of▁sentence｜>";
  config.eos_token = "<｜end▁of▁sentence｜>";
  config.add_bos_token = true;
  config.add_eos_token = true;
  json without = file_;
  without["post_processor"] = {{"type", "ByteLevel"}};
  for (const json& file : {file_, without}) {
    auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()}, config);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(Encode(**tokenizer, "", {}), (Ids{0, 1}));
    EXPECT_EQ(Encode(**tokenizer, "", kWithoutSpecial), Ids{});
  }
  config.bos_token = "<absent>";
  EXPECT_THAT(std::string(Tokenizer::Create({.tokenizer_json = file_.dump()}, config).status().message()),
              HasSubstr("'bos_token'"));
}

TEST_F(TokenizerTest, PostProcessorsMayComeInSequence) {
  json changed = file_;
  changed["post_processor"] = {{"type", "Sequence"},
                               {"processors", {{{"type", "ByteLevel"}}, file_["post_processor"]}}};
  EXPECT_EQ(Encode(*MakeTokenizer(changed), "", {}), Ids{0});
}

TEST_F(TokenizerTest, RefusesTextThatIsNotUtf8) {
  for (const auto& [text, offset] : std::vector<std::pair<std::string, int>>{
           {"ab\xFF", 2}, {"\xC0\x80", 0}, {"x\xED\xA0\x80", 1}, {"中\xE4\xB8", 3}, {"\xF4\x90\x80\x80", 0}}) {
    const absl::Status status = tokenizer_->Encode(text, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte " + std::to_string(offset)));
  }
}

TEST_F(TokenizerTest, ReportsABytesWithoutToken) {
  json changed = file_;
  changed["model"]["vocab"].erase("z");
  changed["model"]["merges"] = json::array();
  const absl::Status status = MakeTokenizer(changed)->Encode("az", kPlain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 122"));
}

TEST_F(TokenizerTest, KnowsItsTokens) {
  const int32_t user = tokenizer_->TokenId("<｜User｜>").value();
  EXPECT_EQ(tokenizer_->TokenId("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_TRUE(tokenizer_->IsSpecial(0));
  EXPECT_FALSE(tokenizer_->IsSpecial(user));
  EXPECT_EQ(tokenizer_->DecodeBytes(user), "<｜User｜>");
  EXPECT_EQ(tokenizer_->DecodeBytes(tokenizer_->TokenId("\u0120").value()), " ");
  EXPECT_EQ(tokenizer_->DecodeBytes(tokenizer_->TokenId("ÿ").value()), "\xFF");
  EXPECT_EQ(tokenizer_->TokenId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer_->size(), 910);
  for (const int32_t id : {-1, 910, 1 << 30}) {
    EXPECT_EQ(tokenizer_->DecodeBytes(id), "");
    EXPECT_FALSE(tokenizer_->IsSpecial(id));
  }
}

// An added token is literal text: the byte map must not turn its "Ġ" into a space.
TEST_F(TokenizerTest, AddedTokensBypassTheByteMap) {
  json changed = file_;
  json token = file_["added_tokens"][2];
  token["id"] = 5000;
  token["content"] = "<Ġé>";
  changed["added_tokens"].push_back(token);
  const auto tokenizer = MakeTokenizer(changed);
  EXPECT_EQ(Encode(*tokenizer, "a<Ġé>", kWithoutSpecial).back(), 5000);
  EXPECT_EQ(tokenizer->Decode(Ids{5000}, /*skip_special=*/false), "<Ġé>");
  EXPECT_EQ(tokenizer->size(), 5001);
}

TEST_F(TokenizerTest, LongInputsTakeLinearTime) {
  constexpr size_t kSize = 1 << 20;
  std::string repeated;
  while (repeated.size() < kSize) repeated += "the 中 ";
  std::mt19937 random(1);
  std::string letters(kSize, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random() % 4);
  std::string mixed(kSize, ' ');
  for (char& c : mixed) c = static_cast<char>(random() % 128);
  for (const std::string& text : {std::string(kSize, 'a'), std::string(kSize, ' ') + "x", std::string(kSize, '\n'),
                                  std::string(kSize, '<'), repeated, letters, mixed}) {
    EXPECT_EQ(tokenizer_->Decode(Encode(*tokenizer_, text, kWithoutSpecial), /*skip_special=*/false), text);
  }
}

}  // namespace
}  // namespace moestro::text
