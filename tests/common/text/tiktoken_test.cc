#include "common/text/tiktoken.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace moestro::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Line(const std::string& bytes, const std::string& rank) {
  return absl::Base64Escape(bytes) + " " + rank + "\n";
}

// All bytes, then "ab", "bc", "abc" and "aab": 260 ranks.
std::string Ranks() {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) ranks += Line(std::string(1, static_cast<char>(byte)), std::to_string(byte));
  return ranks + Line("ab", "256") + Line("bc", "257") + Line("abc", "258") + Line("aab", "259");
}

json Config() {
  return json::parse(R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {
    "260": {"content": "[BOS]", "special": true, "normalized": false},
    "262": {"content": "<|im_end|>", "special": true, "normalized": false}}})");
}

struct Case {
  std::function<void(std::string& ranks, json& config)> change;
  std::string names;  // what the message must name
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTiktoken(const std::string& ranks, const std::string& config,
                                                              int32_t id_limit = INT32_MAX) {
  return Tokenizer::Create({.tokenizer_json = "",
                            .tiktoken_ranks = ranks,
                            .tokenizer_config_json = config,
                            .model_type = "other",
                            .id_limit = id_limit});
}

TEST(TiktokenTest, MergesByTheRankOfTheResult) {
  const auto tokenizer = LoadTiktoken(Ranks(), Config().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encode = [&](const std::string& text) { return (*tokenizer)->Encode(text, {}).value(); };
  EXPECT_THAT(encode("abc"), ElementsAre(258));        // a whole piece
  EXPECT_THAT(encode("zaab"), ElementsAre('z', 259));  // a, then ab: together a token
  EXPECT_THAT(encode("zabcx"), ElementsAre('z', 258, 'x'));
  EXPECT_THAT(encode("aabc"), ElementsAre('a', 258));  // ab goes first, then the lower of abc and aab
  EXPECT_THAT(encode("[BOS]ab<|im_end|><|reserved_token_261|>"), ElementsAre(260, 256, 262, 261));
}

TEST(TiktokenTest, ReservedSlotsHaveNamesUpToTheLimit) {
  for (const auto& [limit, size] :
       std::vector<std::pair<int32_t, int32_t>>{{INT32_MAX, 260 + 256}, {264, 264}, {262, 262}}) {
    const auto tokenizer = LoadTiktoken(Ranks(), Config().dump(), limit);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->size(), size);
    EXPECT_EQ((*tokenizer)->DecodeBytes(261), "<|reserved_token_261|>");
    EXPECT_TRUE((*tokenizer)->IsSpecial(261));
    EXPECT_EQ((*tokenizer)->TokenId("<|im_end|>").has_value(), limit > 262);
  }
}

TEST(TiktokenTest, TheFamilyIsThatOfTheClassOrElseOfTheModel) {
  const auto digits = [](const char* tokenizer_class, const char* model_type) {
    json config = Config();
    config["tokenizer_class"] = tokenizer_class;
    const auto spec = ParseTiktoken(Ranks(), config.dump(), model_type, INT32_MAX);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? spec->splits[0].pattern : "";
  };
  EXPECT_THAT(digits("TikTokenTokenizer", "deepseek_v3"), HasSubstr("Han"));
  EXPECT_THAT(digits("PreTrainedTokenizerFast", "kimi_k2"), HasSubstr("Han"));
  EXPECT_THAT(digits("TiktokenTokenizerWrapper", "dbrx"), testing::Not(HasSubstr("Han")));
  EXPECT_THAT(digits("", "dbrx"), testing::Not(HasSubstr("Han")));
}

TEST(TiktokenTest, ATokenizerJsonGoesFirst) {
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = "{}", .tiktoken_ranks = Ranks()});
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer.json"));
  EXPECT_THAT(std::string(Tokenizer::Create({.tokenizer_json = ""}).status().message()),
              HasSubstr("tokenizer.json: missing or empty"));
}

TEST(TiktokenTest, RefusesMalformedFiles) {
  const auto config = [](const char* key, const json& value) { return [=](std::string&, json& c) { c[key] = value; }; };
  const auto entry = [](const char* id, const json& value) {
    return [=](std::string&, json& c) { c["added_tokens_decoder"][id] = value; };
  };
  const auto line = [](const std::string& text) { return [=](std::string& ranks, json&) { ranks += text; }; };
  for (const auto& [change, names] : std::vector<Case>{
           {line("YQ\n"), "line 261: must be a Base64 token, a space and a rank"},
           {line("!!!! 260\n"), "line 261: the token is not Base64"},
           {line(" 260\n"), "line 261: the token is not Base64"},
           {line("YWFh x\n"), "line 261: the rank is not a number"},
           {line("YWFh -1\n"), "line 261: the rank is not a number"},
           {line("YWFh  260\n"), "line 261: the rank is not a number"},
           {line("YWFh 260 \n"), "line 261: the rank is not a number"},
           {line("YWFh 99999999999\n"), "line 261: the rank is not a number"},
           {line("YWFh\n"), "line 261"},
           {line(std::string("\0\xFF\n", 3)), "line 261"},
           {line(Line("aaa", "261")), "rank 261 of 261 tokens"},
           {line(Line("aaa", "256")), "two tokens have rank 256"},
           {line(Line("abc", "260")), "ranks 258 and 260 are the same token"},
           {line(Line(std::string(1025, 'a'), "260")), "1025 bytes, more than 1024"},
           {[](std::string&r, json&) { r = Line("a", "0"); }, "no token for byte 0"},
           {[](std::string&r, json&) { r.erase(0, r.find('\n') + 1); }, "without a gap"},
           {[](std::string&r, json&) { r = r.substr(0, 20); }, "tiktoken ranks"},
           {[](std::string&r, json&) { r = "\n\n"; }, "no token for byte 0"},
           {[](std::string&, json&c) { c = json::array(); }, "not a JSON object"},
           {config("tokenizer_class", 3), "'tokenizer_class'"},
           {config("added_tokens_decoder", json::array()), "'added_tokens_decoder' must be an object"},
           {entry("x", {{"content", "x"}}), "added_tokens_decoder['x']: is not a token id"},
           {entry("-1", {{"content", "x"}}), "['-1']: is not a token id"},
           {entry("", {{"content", "x"}}), "['']: is not a token id"},
           {entry("99999999999", {{"content", "x"}}), "is not a token id"},
           {entry("7", {{"content", "x"}}), "['7']: ids below 260 belong to the tiktoken ranks"},
           {entry("263", {{"content", "[BOS]"}}), "token '[BOS]' has id 260 too"},
           {entry("263", {{"content", ""}}), "'content' is empty"},
           {entry("263", {{"content", 1}}), "'content'"},
           {entry("263", "x"), "'content'"},
           {entry("263", {{"content", "x"}, {"lstrip", "no"}}), "'lstrip'"},
           {entry("263", {{"content", "<|reserved_token_264|>"}}), "<|reserved_token_264|>"},
       }) {
    std::string ranks = Ranks();
    json file = Config();
    change(ranks, file);
    const absl::Status status = LoadTiktoken(ranks, file.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << names << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(names));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(TiktokenTest, RefusesWhatItCannotSplit) {
  json config = Config();
  config["tokenizer_class"] = "QWenTokenizer";
  const absl::Status status = LoadTiktoken(Ranks(), config.dump()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("'QWenTokenizer'"), HasSubstr("'other'")));
  EXPECT_THAT(std::string(LoadTiktoken(Ranks(), "").status().message()),
              HasSubstr("tokenizer_config.json: missing or empty"));
  EXPECT_THAT(std::string(LoadTiktoken(Ranks(), "{").status().message()),
              HasSubstr("tokenizer_config.json: not valid JSON"));
}

}  // namespace
}  // namespace moestro::text
