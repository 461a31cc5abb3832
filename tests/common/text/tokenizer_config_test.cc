#include "common/text/tokenizer_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro {
namespace {

TEST(TokenizerConfigTest, ReadsBothSpellingsOfTokens) {
  const auto config = ParseTokenizerConfig(
      R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "add_bos_token": true,
          "add_eos_token": null, "chat_template": "{{ 1 }}", "unk_token": null})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bos_token, "<s>");
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_TRUE(config->add_bos_token);
  EXPECT_FALSE(config->add_eos_token);
  EXPECT_EQ(config->chat_template, "{{ 1 }}");
}

TEST(TokenizerConfigTest, EverythingIsOptional) {
  const auto config = ParseTokenizerConfig("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bos_token, "");
  EXPECT_EQ(config->chat_template, "");
}

TEST(TokenizerConfigTest, TakesTheDefaultOfSeveralTemplates) {
  const auto config = ParseTokenizerConfig(
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->chat_template, "d");
}

TEST(TokenizerConfigTest, NamesTheFieldThatIsWrong) {
  for (const auto& [json, field] : std::vector<std::pair<std::string, std::string>>{
           {"", "JSON"},
           {"[]", "JSON"},
           {R"({"bos_token": 1})", "bos_token"},
           {R"({"eos_token": {"text": "x"}})", "content"},
           {R"({"add_bos_token": "yes"})", "add_bos_token"},
           {R"({"chat_template": 5})", "chat_template"},
           {R"({"chat_template": [{"name": "other", "template": "t"}]})", "default"},
           {R"({"chat_template": [1]})", "name"},
       }) {
    const absl::Status status = ParseTokenizerConfig(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(field));
  }
}

}  // namespace
}  // namespace moestro
