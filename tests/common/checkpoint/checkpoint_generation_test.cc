#include <gtest/gtest.h>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kVocab = 100;

TEST(GenerationDefaultsParse, NothingGiven) {
  const auto defaults = checkpoint::ParseGenerationDefaults({.config_json = "{}"}, kVocab);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 1);
  EXPECT_EQ(defaults->top_p, 1);
  EXPECT_EQ(defaults->min_p, 0);
  EXPECT_EQ(defaults->repetition_penalty, 1);
  EXPECT_EQ(defaults->top_k, 0);
  EXPECT_EQ(defaults->max_new_tokens, 0);
  EXPECT_EQ(defaults->sampling_source, "nothing is published");
  EXPECT_EQ(defaults->bos, -1);
  EXPECT_THAT(defaults->stop_ids, IsEmpty());
  EXPECT_EQ(defaults->chat_template, "");
}

TEST(GenerationDefaultsParse, AllFilesTogether) {
  checkpoint::CheckpointDocuments documents;
  documents.config_json = R"({"bos_token_id":0,"eos_token_id":[5,7]})";
  documents.generation_config_json =
      R"({"bos_token_id":3,"eos_token_id":7,"temperature":0.6,"top_p":0.95,"top_k":20,"do_sample":true,)"
      R"("min_p":0.05,"repetition_penalty":1.05,"max_new_tokens":2048,"max_length":20})";
  documents.tokenizer_json = R"({"added_tokens":[{"id":9,"content":"<eos>"},{"id":3,"content":"<bos>"}]})";
  documents.tokenizer_config_json =
      R"({"bos_token":"<bos>","eos_token":{"content":"<eos>","lstrip":false},"chat_template":"{{ x }}"})";
  const auto defaults = checkpoint::ParseGenerationDefaults(documents, kVocab);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->min_p, 0.05);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->max_new_tokens, 2048);
  EXPECT_EQ(defaults->sampling_source, "generation_config.json");
  EXPECT_EQ(defaults->bos, 3);
  EXPECT_THAT(defaults->stop_ids, ElementsAre(5, 7, 9));
  EXPECT_EQ(defaults->bos_token, "<bos>");
  EXPECT_EQ(defaults->eos_token, "<eos>");
  EXPECT_EQ(defaults->chat_template, "{{ x }}");
}

TEST(GenerationDefaultsParse, TokensResolveByText) {
  // No tokenizer.json, as in the original release of Kimi-K2: tokenizer_config.json names the special tokens.
  checkpoint::CheckpointDocuments documents;
  documents.config_json = "{}";
  documents.generation_config_json = R"({"eos_token_id":86})";
  documents.tokenizer_config_json =
      R"({"bos_token":"[BOS]","eos_token":"[EOS]","added_tokens_decoder":{"84":{"content":"[BOS]"},)"
      R"("85":{"content":"[EOS]"},"86":{"content":"<|im_end|>"},"100":{"content":"<|reserved|>"}}})";
  const auto defaults = checkpoint::ParseGenerationDefaults(documents, kVocab);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos, 84);
  EXPECT_THAT(defaults->stop_ids, ElementsAre(85, 86));
}

TEST(GenerationDefaultsParse, WhetherTextBeginsWithBos) {
  const auto adds_bos = [](const char* tokenizer_config) {
    checkpoint::CheckpointDocuments documents;
    documents.config_json = "{}";
    documents.tokenizer_config_json = tokenizer_config;
    const auto defaults = checkpoint::ParseGenerationDefaults(documents, kVocab);
    EXPECT_TRUE(defaults.ok()) << defaults.status();
    return defaults.ok() && defaults->add_bos_token;
  };
  EXPECT_TRUE(adds_bos(R"({"bos_token":"<s>","add_bos_token":true,"tokenizer_class":"LlamaTokenizerFast"})"));
  EXPECT_TRUE(adds_bos(R"({"bos_token":"<s>","add_bos_token":true})"));
  EXPECT_FALSE(adds_bos(R"({"bos_token":"<s>","add_bos_token":false,"tokenizer_class":"LlamaTokenizerFast"})"));
  // Without a setting, the default depends on the class.
  EXPECT_TRUE(adds_bos(R"({"bos_token":{"content":"<s>"},"tokenizer_class":"LlamaTokenizerFast"})"));
  EXPECT_TRUE(adds_bos(R"({"bos_token":"<s>","tokenizer_class":"LlamaTokenizer"})"));
  EXPECT_FALSE(adds_bos(R"({"bos_token":"[BOS]","tokenizer_class":"TikTokenTokenizer"})"));
  EXPECT_FALSE(adds_bos(R"({"bos_token":"<s>"})"));
  // There must be one.
  EXPECT_FALSE(adds_bos(R"({"add_bos_token":true,"tokenizer_class":"LlamaTokenizerFast"})"));
  EXPECT_FALSE(adds_bos("{}"));
}

TEST(GenerationDefaultsParse, ChatTemplateSources) {
  checkpoint::CheckpointDocuments documents;
  documents.config_json = "{}";
  documents.tokenizer_config_json =
      R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})";
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->chat_template, "D");
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->tool_use_template, "T");
  documents.chat_template_jinja = "J";
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->chat_template, "J");
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->tool_use_template, "");
  documents.tool_use_jinja = "U";
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->chat_template, "J");
  EXPECT_EQ(checkpoint::ParseGenerationDefaults(documents, kVocab)->tool_use_template, "U");
}

TEST(GenerationDefaultsParse, MinusOneIsNoLimit) {
  EXPECT_EQ(
      checkpoint::ParseGenerationDefaults({.config_json = "{}", .generation_config_json = R"({"top_k":-1})"}, kVocab)
          ->top_k,
      0);
}

TEST(GenerationDefaultsReject, GenerationConfig) {
  const auto refuse = [](const std::string& text, const std::string& part) {
    ExpectError(
        checkpoint::ParseGenerationDefaults({.config_json = "{}", .generation_config_json = text}, kVocab).status(),
        kInvalid, {"generation_config.json", part});
  };
  refuse("[", "not valid JSON");
  refuse(R"({"temperature":-1})", "temperature: -1 is out of range");
  refuse(R"({"temperature":"hot"})", "temperature: \"hot\" is not a number");
  refuse(R"({"top_p":0})", "top_p: 0 is out of range");
  refuse(R"({"top_p":1.5})", "top_p: 1.5 is out of range");
  refuse(R"({"min_p":-1})", "min_p: -1 is out of range");
  refuse(R"({"repetition_penalty":0})", "repetition_penalty: 0 is out of range");
  refuse(R"({"top_k":-2})", "top_k: -2 is out of range");
  refuse(R"({"max_new_tokens":-1})", "max_new_tokens: -1 is out of range");
  refuse(R"({"do_sample":1})", "do_sample: 1 is not true or false");
  refuse(R"({"eos_token_id":100})", "eos_token_id: 100 is out of range");
  refuse(R"({"eos_token_id":[1,100]})", "eos_token_id: 100 is not an id below vocab_size = 100");
  refuse(R"({"eos_token_id":["1"]})", "eos_token_id: \"1\"");
  refuse(R"({"eos_token_id":"1"})", "eos_token_id: \"1\" is not an integer");
  refuse(R"({"bos_token_id":-1})", "bos_token_id: -1 is out of range");
}

TEST(GenerationDefaultsReject, TokenizerConfig) {
  const auto refuse = [](const std::string& text, const std::string& part) {
    const checkpoint::CheckpointDocuments documents = {
        .config_json = "{}", .tokenizer_json = R"({"added_tokens":[]})", .tokenizer_config_json = text};
    ExpectError(checkpoint::ParseGenerationDefaults(documents, kVocab).status(), kInvalid,
                {"tokenizer_config.json", part});
  };
  refuse(R"({"eos_token":"<eos>"})", "eos_token: '<eos>' is not among added_tokens of tokenizer.json");
  refuse(R"({"eos_token":3})", "eos_token: 3 is not a string");
  refuse(R"({"bos_token":{"content":3}})", "bos_token: content: 3 is not a string");
  refuse(R"({"chat_template":[{"name":"default"}]})", "chat_template: an entry of the list lacks name or template");
  refuse(R"({"chat_template":3})", "chat_template: 3 is not a string");
  refuse(R"({"added_tokens_decoder":{"x":{"content":"a"}}})", "added_tokens_decoder: 'x' is not a token id");
}

}  // namespace
}  // namespace moestro::testing
