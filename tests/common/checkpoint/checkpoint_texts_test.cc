#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/texts.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A token for every byte.
std::string ByteRanks() {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    absl::StrAppend(&ranks, absl::Base64Escape(std::string(1, static_cast<char>(byte))), " ", byte, "\n");
  }
  return ranks;
}

constexpr char kKimiConfig[] =
    R"({"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"256":{"content":"[BOS]","special":true}}})";

struct Checked {
  absl::StatusOr<int32_t> tokens;
  std::vector<std::string> warnings;
};

Checked Check(checkpoint::CheckpointDocuments documents, int64_t vocab_size, const std::string& chat_template = "") {
  weights::ModelSpec spec = TinySpec();
  spec.vocab_size = vocab_size;
  checkpoint::GenerationDefaults defaults;
  defaults.chat_template = chat_template;
  Checked result;
  result.tokens = checkpoint::CheckTexts(documents, defaults, spec, &result.warnings);
  return result;
}

TEST(CheckTexts, CountsTheTokens) {
  const Checked json = Check({.tokenizer_json = TinyTokenizerJson()}, 300, "{{ messages }}");
  ASSERT_TRUE(json.tokens.ok()) << json.tokens.status();
  EXPECT_EQ(*json.tokens, kTokenCount);
  EXPECT_THAT(json.warnings, IsEmpty());
  for (const auto& [rows, tokens] : std::vector<std::pair<int64_t, int32_t>>{{1000, 512}, {512, 512}, {300, 300}}) {
    const Checked ranks = Check({.tokenizer_config_json = kKimiConfig, .tiktoken_ranks = ByteRanks()}, rows);
    ASSERT_TRUE(ranks.tokens.ok()) << ranks.tokens.status();
    EXPECT_EQ(*ranks.tokens, tokens);
  }
}

TEST(CheckTexts, RefusesWhatTheRouterCannotUse) {
  using enum absl::StatusCode;
  ExpectError(Check({}, 300).tokens.status(), kNotFound, {"tokenizer.json", "tiktoken.model", "download"});
  ExpectError(Check({.tokenizer_json = "{"}, 300).tokens.status(), kInvalidArgument, {"tokenizer.json"});
  nlohmann::json lowercase = nlohmann::json::parse(TinyTokenizerJson());
  lowercase["normalizer"] = {{"type", "Lowercase"}};
  ExpectError(Check({.tokenizer_json = lowercase.dump()}, 300).tokens.status(), kUnimplemented, {"Lowercase"});
  ExpectError(Check({.tokenizer_json = TinyTokenizerJson()}, 100).tokens.status(), kInvalidArgument,
              {"ids up to 262", "vocab_size = 100"});
  ExpectError(Check({.tiktoken_ranks = ByteRanks()}, 300).tokens.status(), kInvalidArgument, {"tokenizer_config.json"});
  ExpectError(Check({.tokenizer_config_json = kKimiConfig, .tiktoken_ranks = "x"}, 300).tokens.status(),
              kInvalidArgument, {"line 1"});
  ExpectError(Check({.tokenizer_config_json = kKimiConfig, .tiktoken_ranks = ByteRanks()}, 100).tokens.status(),
              kInvalidArgument, {"vocab_size = 100"});
}

TEST(CheckTexts, WarnsOfAChatTemplateThatCannotBeUsed) {
  const Checked result = Check({.tokenizer_json = TinyTokenizerJson()}, 300, "{% if %}");
  EXPECT_TRUE(result.tokens.ok()) << result.tokens.status();
  ASSERT_THAT(result.warnings, SizeIs(1));
  EXPECT_THAT(result.warnings[0], HasSubstr("chats are refused"));
}

TEST(CheckpointRanks, AreReadWhereThereIsNoTokenizerJson) {
  TempDir dir;
  SafetensorsBuilder weights;
  weights.Add("a", "F32", {2});
  dir.Write("model.safetensors", weights.Build());
  dir.Write("config.json", "{}");
  const auto open = [&] { return checkpoint::Checkpoint::Open(dir.path()).value(); };
  const std::string without = open().fingerprint();
  dir.Write("b.tiktoken", "B");
  EXPECT_EQ(open().documents().tiktoken_ranks, "B");
  const std::string with = open().fingerprint();
  EXPECT_NE(with, without);
  dir.Write("b.tiktoken", "C");
  EXPECT_NE(open().fingerprint(), with);
  dir.Write("c.tiktoken", "C");
  ExpectError(checkpoint::Checkpoint::Open(dir.path()).status(), absl::StatusCode::kInvalidArgument,
              {dir.path(), "several *.tiktoken"});
  dir.Write("tiktoken.model", "K");
  EXPECT_EQ(open().documents().tiktoken_ranks, "K");
  dir.Write("tokenizer.json", "t");
  EXPECT_EQ(open().documents().tiktoken_ranks, "");
}

}  // namespace
}  // namespace moestro::testing
