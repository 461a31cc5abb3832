#include "common/checkpoint/named_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr char kTokenizer[] =
    R"({"model": {"vocab": {"a": 0, "b": 1, "<|in|>": 2}}, "added_tokens": [{"id": 3, "content": "<|old|>"}]})";

// "id:content" of the added tokens; one that is not special has a "-" behind it.
std::vector<std::string> Added(const TokenNames& names, int64_t vocab_size = 100, const char* tokenizer = kTokenizer) {
  const absl::StatusOr<std::string> text = WithNamedTokens(tokenizer, names, vocab_size);
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<std::string> found;
  const json document = json::parse(*text);
  for (const json& token : document["added_tokens"]) {
    found.push_back(token["id"].dump() + ":" + token["content"].get<std::string>() +
                    (token.value("special", true) ? "" : "-"));
  }
  return found;
}

// The ids are those of transformers 5.24.
TEST(NamedTokensTest, TheDecodersTokensAreAdded) {
  const TokenNames names{R"({"added_tokens_decoder": {"10": {"content": "<|z|>", "special": false},
    "4": {"content": "<|x|>", "special": true, "normalized": false}, "9": {"content": "<|in|>", "special": true},
    "3": {"content": "<|old|>", "special": true}}})",
                         R"({"<|unread|>": 5})", R"({"eos_token": "<|unread too|>"})"};
  const std::vector<std::string> expected = {"3:<|old|>", "4:<|x|>", "2:<|in|>", "5:<|z|>-"};
  EXPECT_EQ(Added(names), expected);
}

TEST(NamedTokensTest, OlderFilesAreReadWithoutADecoder) {
  const std::vector<std::string> expected = {"3:<|old|>", "4:<|y|>-", "5:<|x|>-", "6:<|end|>", "7:<|u|>", "8:<|v|>"};
  EXPECT_EQ(
      Added({R"({"eos_token": "<|other|>"})", R"({"<|x|>": 8, "<|y|>": 7})",
             R"({"eos_token": {"content": "<|end|>"}, "additional_special_tokens": ["<|u|>", {"content": "<|v|>"}]})"}),
      expected);
}

TEST(NamedTokensTest, NamesOfSpecialTokensAreAddedBehindTheDecoder) {
  const std::vector<std::string> expected = {"3:<|old|>", "4:<|x|>", "5:<|pad|>", "6:<|image|>", "7:<|user|>"};
  EXPECT_EQ(Added({R"({"added_tokens_decoder": {"4": {"content": "<|x|>"}}, "pad_token": "<|pad|>", "unk_token": null,
                      "extra_special_tokens": {"image_token": "<|image|>"},
                      "additional_special_tokens": ["<|x|>", "<|user|>"]})"}),
            expected);
}

TEST(NamedTokensTest, TokensEndWithTheRowsOfTheEmbedding) {
  const std::vector<std::string> expected = {"3:<|old|>", "4:<|x|>"};
  EXPECT_EQ(Added({R"({"additional_special_tokens": ["<|x|>", "<|y|>", "<|z|>"]})"}, 5), expected);
}

TEST(NamedTokensTest, TheListMayBeEmptyOrAbsent) {
  const std::vector<std::string> expected = {"1:<|x|>"};
  const TokenNames names{R"({"eos_token": "<|x|>"})"};
  EXPECT_EQ(Added(names, 9, R"({"model": {"vocab": {"a": 0}}, "added_tokens": []})"), expected);
  EXPECT_EQ(Added(names, 9, R"({"model": {"vocab": {"a": 0}}})"), expected);
}

TEST(NamedTokensTest, WhatLacksNothingOrIsNotKnownStays) {
  for (const char* tokenizer :
       {"", "{", "[]", "{}", R"({"model": {"vocab": []}})", R"({"model": {"vocab": {"a": 0}}, "added_tokens": [5]})"}) {
    EXPECT_EQ(*WithNamedTokens(tokenizer, {R"({"eos_token": "<|x|>"})"}, 9), tokenizer);
  }
  for (const char* config : {"", "{}", R"({"eos_token": "<|old|>"})", R"({"eos_token": ""})", R"({"eos_token": 5})",
                             R"({"added_tokens_decoder": {"x": {"content": "y"}, "7": {"content": 7}, "8": 8}})"}) {
    EXPECT_EQ(*WithNamedTokens(kTokenizer, {config}, 9), kTokenizer) << config;
  }
  EXPECT_THAT(std::string(WithNamedTokens(kTokenizer, {"{"}, 9).status().message()),
              ::testing::HasSubstr("tokenizer_config.json"));
}

}  // namespace
}  // namespace moestro::checkpoint
