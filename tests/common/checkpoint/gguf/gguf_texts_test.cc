#include "common/checkpoint/gguf/gguf_texts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "common/checkpoint/texts.h"
#include "common/text/byte_level.h"
#include "common/text/concat.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_spec.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/common/checkpoint/gguf/metadata_json.h"
#include "tests/common/text/golden.h"

namespace moestro::testing {
namespace {

using checkpoint::CheckpointDocuments;
using checkpoint::GenerationDefaults;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using text::Tokenizer;
using Ids = std::vector<int32_t>;
using enum absl::StatusCode;

constexpr int64_t kManyRows = 1 << 20;
constexpr Tokenizer::EncodeOptions kUntrusted = {.add_special_tokens = false, .parse_special_tokens = false};

CheckpointDocuments Documents(const json& metadata) {
  CheckpointDocuments documents = {.config_json = "{}"};
  const absl::Status status = checkpoint::AddGgufTexts(MetadataFromJson(metadata), kManyRows, &documents);
  EXPECT_TRUE(status.ok()) << status;
  return documents;
}

absl::Status Refused(const json& metadata, int64_t rows = kManyRows) {
  CheckpointDocuments documents;
  return checkpoint::AddGgufTexts(MetadataFromJson(metadata), rows, &documents);
}

GenerationDefaults Defaults(const CheckpointDocuments& documents) {
  return checkpoint::ParseGenerationDefaults(documents, kManyRows).value();
}

// As the router makes it.
std::unique_ptr<const Tokenizer> MakeTokenizer(const CheckpointDocuments& documents) {
  const GenerationDefaults defaults = Defaults(documents);
  text::TokenizerConfig config;
  config.bos_token = defaults.bos_token;
  config.add_bos_token = defaults.add_bos_token;
  auto tokenizer = Tokenizer::Create({.tokenizer_json = documents.tokenizer_json,
                                      .tiktoken_ranks = documents.tiktoken_ranks,
                                      .tokenizer_config_json = documents.tokenizer_config_json},
                                     config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// The files that the metadata of tests/golden/text/gguf were converted from, without flags that such a file cannot say.
std::unique_ptr<const Tokenizer> Original(const std::string& name) {
  if (name == "deepseek_v3") {
    json file = text::ReadGoldenJson("tokenizer.json");
    for (json& token : file["added_tokens"]) {
      for (const char* flag : {"lstrip", "rstrip", "single_word"}) token[flag] = false;
    }
    return text::MakeTokenizer(file);
  }
  const json files = text::ReadGoldenJson("kinds/" + name + ".json")["files"];
  return Tokenizer::Create({.tokenizer_json = files.value("tokenizer.json", ""),
                            .tiktoken_ranks = files.value("tiktoken.model", ""),
                            .tokenizer_config_json = files.value("tokenizer_config.json", "")})
      .value();
}

class GgufTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<const Tokenizer> original_ = Original(GetParam());
  const CheckpointDocuments documents_ = Documents(text::ReadGoldenJson(std::string("gguf/") + GetParam() + ".json"));
  const std::unique_ptr<const Tokenizer> tokenizer_ = MakeTokenizer(documents_);
};

TEST_P(GgufTokenizerTest, EncodesAsTheOriginal) {
  ASSERT_NE(tokenizer_, nullptr);
  for (const auto& text : text::ReadGoldenJson("kinds/texts.json").get<std::vector<std::string>>()) {
    EXPECT_EQ(tokenizer_->Encode(text, {}).value(), original_->Encode(text, {}).value()) << json(text);
    EXPECT_EQ(tokenizer_->Encode(text, kUntrusted).value(), original_->Encode(text, kUntrusted).value()) << json(text);
  }
}

TEST_P(GgufTokenizerTest, DecodesAsTheOriginal) {
  ASSERT_NE(tokenizer_, nullptr);
  EXPECT_EQ(tokenizer_->size(), original_->size());
  for (int32_t id = 0; id < original_->size() + 16; ++id) {
    EXPECT_EQ(tokenizer_->DecodeBytes(id), original_->DecodeBytes(id)) << id;
    EXPECT_EQ(tokenizer_->IsSpecial(id), original_->IsSpecial(id)) << id;
  }
  for (const auto& text : text::ReadGoldenJson("kinds/texts.json").get<std::vector<std::string>>()) {
    const Ids ids = original_->Encode(text, {}).value();
    for (const bool skip : {false, true}) EXPECT_EQ(tokenizer_->Decode(ids, skip), original_->Decode(ids, skip));
  }
}

TEST_P(GgufTokenizerTest, UntrustedTextNeverBecomesAControlToken) {
  ASSERT_NE(tokenizer_, nullptr);
  EXPECT_EQ(tokenizer_->added_tokens().size(), original_->added_tokens().size());
  for (const text::AddedToken& token : tokenizer_->added_tokens()) {
    EXPECT_THAT(tokenizer_->Encode(token.content, kUntrusted).value(), Not(::testing::Contains(token.id)));
    EXPECT_THAT(tokenizer_->Encode(token.content, {}).value(), ::testing::Contains(token.id));
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GgufTokenizerTest,
                         ::testing::Values("qwen", "llama3", "gpt_oss", "deepseek_v2", "deepseek_v3", "kimi_k2", "dbrx",
                                           "llama", "llama_bare"),
                         [](const auto& kind) { return std::string(kind.param); });

// A byte-level vocabulary of the 256 bytes, "ab", a control token, a user's token and a row without a token.
constexpr int32_t kPair = 256, kEnd = 257, kThink = 258, kUnused = 259;
json ByteLevelMetadata() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    tokens.push_back(text::SpellBytes({&value, 1}));
  }
  std::vector<int> types(256, 1);
  for (const auto& [token, type] :
       std::vector<std::pair<std::string, int>>{{"ab", 1}, {"<|im_end|>", 3}, {"<think>", 4}, {"[PAD259]", 5}}) {
    tokens.push_back(token);
    types.push_back(type);
  }
  return {{"tokenizer.ggml.model", "gpt2"},   {"tokenizer.ggml.pre", "qwen2"},
          {"tokenizer.ggml.tokens", tokens},  {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", {"a b"}}, {"tokenizer.ggml.eos_token_id", kEnd}};
}

// Of SentencePiece: three control tokens, the bytes, and the pieces of "▁ab".
constexpr int32_t kFirstPiece = 259;
json SentencePieceMetadata() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int> types = {2, 3, 3};
  std::vector<float> scores(kFirstPiece, 0.0f);
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(text::ByteTokenSpelling(static_cast<unsigned char>(byte)));
    types.push_back(6);
  }
  float score = -1;
  for (const char* piece : {"ab", "▁a", "▁ab", "▁", "a", "b"}) {
    tokens.push_back(piece);
    types.push_back(1);
    scores.push_back(score--);
  }
  return {{"tokenizer.ggml.model", "llama"},     {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", types},  {"tokenizer.ggml.scores", scores},
          {"tokenizer.ggml.bos_token_id", 1},    {"tokenizer.ggml.eos_token_id", 2},
          {"tokenizer.ggml.unknown_token_id", 0}};
}

json With(json metadata, const std::string& key, json value) {
  metadata["tokenizer.ggml." + key] = std::move(value);
  return metadata;
}

json Without(json metadata, const std::string& key) {
  metadata.erase("tokenizer.ggml." + key);
  return metadata;
}

json WithEntry(json metadata, const std::string& key, size_t index, json value) {
  metadata["tokenizer.ggml." + key][index] = std::move(value);
  return metadata;
}

TEST(GgufTexts, EveryNameOfAPatternGivesATokenizer) {
  const std::set<std::string_view> with_bos = {"falcon3",  "llama-bpe", "llama-v3", "llama3",
                                               "midm-2.0", "pixtral",   "tekken"};
  for (const char* pre : {"chatglm-bpe",      "codeshell",   "command-r", "dbrx",     "deepseek-coder", "deepseek-llm",
                          "deepseek-r1-qwen", "deepseek-v3", "falcon3",   "gigachat", "glm4",           "gpt-2",
                          "gpt-4o",           "joyai-llm",   "kanana2",   "kimi-k2",  "llama-bpe",      "llama-v3",
                          "llama3",           "megrez",      "mellum",    "mellum2",  "midm-2.0",       "minerva-7b",
                          "minimax-m2",       "pixtral",     "qwen2",     "refact",   "seed-coder",     "smaug-bpe",
                          "smollm",           "solar-open",  "starcoder", "tekken",   "trillion",       "youtu"}) {
    json metadata = With(ByteLevelMetadata(), "pre", pre);
    metadata["tokenizer.ggml.bos_token_id"] = kEnd;
    const auto tokenizer = MakeTokenizer(Documents(metadata));
    ASSERT_NE(tokenizer, nullptr) << pre;
    EXPECT_THAT(tokenizer->Encode("ab", kUntrusted).value(), ElementsAre(kPair)) << pre;
    EXPECT_EQ(tokenizer->Encode("", {}).value().size(), with_bos.contains(pre) ? 1 : 0) << pre;
  }
  // Digits: one by one, in threes, or all.
  const auto pieces = [](const char* pre) {
    json metadata = With(ByteLevelMetadata(), "pre", pre);
    metadata["tokenizer.ggml.bos_token_id"] = kEnd;
    for (const char* number : {"11", "111", "1111"}) {
      metadata["tokenizer.ggml.tokens"].push_back(number);
      metadata["tokenizer.ggml.token_type"].push_back(1);
    }
    metadata["tokenizer.ggml.merges"] = {"1 1", "11 1", "11 11"};
    return MakeTokenizer(Documents(metadata))->Encode("1111", kUntrusted).value().size();
  };
  for (const char* pre :
       {"qwen2", "deepseek-llm", "deepseek-coder", "smollm", "starcoder", "tekken", "seed-coder", "youtu"}) {
    EXPECT_EQ(pieces(pre), 4) << pre;
  }
  for (const char* pre : {"glm4", "deepseek-v3", "gpt-4o", "minimax-m2", "smaug-bpe"}) EXPECT_EQ(pieces(pre), 2) << pre;
  for (const char* pre : {"gpt-2", "gigachat", "mellum"}) EXPECT_EQ(pieces(pre), 1) << pre;
}

TEST(GgufTexts, SettingsAreThoseOfTheKeys) {
  json metadata = ByteLevelMetadata();
  metadata["tokenizer.ggml.bos_token_id"] = 'a';
  metadata["tokenizer.ggml.eos_token_id"] = kThink;
  metadata["tokenizer.ggml.add_bos_token"] = true;
  metadata["tokenizer.ggml.padding_token_id"] = kThink;
  metadata["tokenizer.chat_template"] = "{{ messages }}";
  metadata["general.sampling.temp"] = 0.6f;
  metadata["general.sampling.top_k"] = 20;
  metadata["general.sampling.top_p"] = 0.95f;
  metadata["general.sampling.min_p"] = 0.05f;
  metadata["general.sampling.penalty_repeat"] = 1.5f;
  const CheckpointDocuments documents = Documents(metadata);
  const GenerationDefaults defaults = Defaults(documents);
  EXPECT_EQ(defaults.bos_token, metadata["tokenizer.ggml.tokens"]['a']);
  EXPECT_TRUE(defaults.add_bos_token);
  EXPECT_EQ(defaults.bos, 'a');
  EXPECT_EQ(defaults.eos_token, "<think>");
  EXPECT_THAT(defaults.stop_ids, ElementsAre(kEnd, kThink));  // <|im_end|> ends an answer, too
  EXPECT_EQ(defaults.chat_template, "{{ messages }}");
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.top_p, 0.95);
  EXPECT_EQ(defaults.min_p, 0.05);
  EXPECT_EQ(defaults.repetition_penalty, 1.5);
  EXPECT_EQ(defaults.sampling_source, "GGUF");
  EXPECT_EQ(json::parse(documents.tokenizer_config_json)["pad_token"], "<think>");
  EXPECT_EQ(json::parse(documents.tokenizer_json)["model"]["vocab"].count("[PAD259]"), 0);
}

TEST(GgufTexts, EveryStopTokenStops) {
  json metadata = ByteLevelMetadata();
  metadata["tokenizer.ggml.tokens"][kUnused] = "<|user|>";
  metadata["tokenizer.ggml.token_type"][kUnused] = 3;
  metadata["tokenizer.ggml.eot_token_id"] = kUnused;
  metadata["tokenizer.ggml.eom_token_id"] = kThink;
  EXPECT_THAT(Defaults(Documents(metadata)).stop_ids, ElementsAre(kEnd, kThink, kUnused));
  EXPECT_EQ(Defaults(Documents(metadata)).sampling_source, "nothing is published");
}

TEST(GgufTexts, ReadsNamedTemplates) {
  json metadata = ByteLevelMetadata();
  metadata["tokenizer.chat_template"] = "plain";
  metadata["tokenizer.chat_templates"] = {"tool_use", "rag"};
  metadata["tokenizer.chat_template.tool_use"] = "tools";
  metadata["tokenizer.chat_template.rag"] = "rag";
  const GenerationDefaults defaults = Defaults(Documents(metadata));
  EXPECT_EQ(defaults.chat_template, "plain");
  EXPECT_EQ(defaults.tool_use_template, "tools");
  metadata.erase("tokenizer.chat_template.rag");
  ExpectError(Refused(metadata), kInvalidArgument, {"tokenizer.chat_template.rag", "missing"});
  metadata["tokenizer.chat_template"] = "\xFF";
  ExpectError(Refused(metadata), kInvalidArgument, {"tokenizer.chat_template", "not UTF-8 at byte 0"});
}

// inspect refuses or warns before weights are loaded: with templates in the metadata, too.
TEST(GgufTexts, TemplatesAreCheckedBeforeWeightsAreLoaded) {
  weights::ModelSpec spec = TinySpec();
  spec.vocab_size = 260;
  const auto warnings = [&](const json& metadata) {
    const CheckpointDocuments documents = Documents(metadata);
    std::vector<std::string> found;
    EXPECT_TRUE(checkpoint::CheckTexts(documents, Defaults(documents), spec, &found).ok());
    return found;
  };
  json metadata = ByteLevelMetadata();
  metadata["tokenizer.chat_templates"] = {"tool_use"};
  int templates = 0;
  for (const auto& file : std::filesystem::directory_iterator("tests/golden/text/templates")) {
    const std::string source = text::ReadGolden("templates/" + file.path().filename().string());
    ASSERT_FALSE(source.empty());
    metadata["tokenizer.chat_template"] = source;
    metadata["tokenizer.chat_template.tool_use"] = source;
    EXPECT_THAT(warnings(metadata), IsEmpty()) << file.path();
    ++templates;
  }
  EXPECT_GE(templates, 19);
  metadata["tokenizer.chat_template.tool_use"] = "{% for tool in tools %}";
  EXPECT_THAT(warnings(metadata), ElementsAre(HasSubstr("chats are refused")));
  metadata["tokenizer.chat_template"] = "{% if %}";
  EXPECT_EQ(warnings(metadata).size(), 2);
}

TEST(GgufTexts, DocumentsBesideTheFileWin) {
  json metadata = With(ByteLevelMetadata(), "pre", "unheard-of");
  metadata["tokenizer.ggml.tokens"][0] = "\xFF";
  CheckpointDocuments documents = {.tokenizer_json = "T"};
  ASSERT_TRUE(checkpoint::AddGgufTexts(MetadataFromJson(metadata), 1, &documents).ok());
  EXPECT_EQ(documents.tokenizer_json, "T");
  EXPECT_EQ(json::parse(documents.tokenizer_config_json)["eos_token"], "<|im_end|>");
  EXPECT_EQ(json::parse(documents.generation_config_json)["eos_token_id"], json({kEnd}));
  documents = {.generation_config_json = "G", .tokenizer_config_json = "C", .tiktoken_ranks = "R"};
  ASSERT_TRUE(checkpoint::AddGgufTexts(MetadataFromJson(metadata), 1, &documents).ok());
  EXPECT_EQ(documents.tokenizer_json, "");
  EXPECT_EQ(documents.tiktoken_ranks, "R");
  EXPECT_EQ(documents.tokenizer_config_json, "C");
  EXPECT_EQ(documents.generation_config_json, "G");
  // Some files have the whole tokenizer.json.
  metadata["tokenizer.huggingface.json"] = "H";
  EXPECT_EQ(Documents(metadata).tokenizer_json, "H");
  metadata["tokenizer.huggingface.json"] = "\xFF";
  ExpectError(Refused(metadata), kInvalidArgument, {"tokenizer.huggingface.json", "not UTF-8"});
}

TEST(GgufTexts, TheRouterCanUseThem) {
  CheckpointDocuments documents = Documents(ByteLevelMetadata());
  weights::ModelSpec spec = TinySpec();
  spec.vocab_size = 260;
  std::vector<std::string> warnings;
  EXPECT_EQ(checkpoint::CheckTexts(documents, Defaults(documents), spec, &warnings).value(), kUnused);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(GgufTexts, RefusesTokenizersThatItDoesNotKnow) {
  const json good = ByteLevelMetadata();
  for (const char* model : {"t5", "bert", "rwkv", "plamo2", "no_vocab"}) {
    ExpectError(Refused(With(good, "model", model)), kUnimplemented,
                {"model.gguf", "tokenizer.ggml.model", model, "put the model's tokenizer.json beside the file"});
  }
  for (const char* pre : {"default", "falcon"}) {
    ExpectError(Refused(With(good, "pre", pre)), kUnimplemented, {"tokenizer.ggml.pre", pre, "tokenizer.json beside"});
  }
  ExpectError(Refused(Without(good, "pre")), kInvalidArgument, {"tokenizer.ggml.pre", "missing", "beside"});
  ExpectError(Refused(Without(good, "model")), kInvalidArgument, {"tokenizer.ggml.model", "missing"});
  ExpectError(Refused(Without(good, "tokens")), kInvalidArgument, {"tokenizer.ggml.tokens", "missing"});
  ExpectError(Refused(Without(good, "token_type")), kInvalidArgument, {"tokenizer.ggml.token_type", "missing"});
  ExpectError(Refused(Without(good, "merges")), kInvalidArgument, {"tokenizer.ggml.merges", "missing"});
  ExpectError(Refused(With(SentencePieceMetadata(), "remove_extra_whitespaces", true)), kUnimplemented,
              {"tokenizer.ggml.remove_extra_whitespaces", "beside"});
  EXPECT_TRUE(Refused(With(SentencePieceMetadata(), "remove_extra_whitespaces", false)).ok());
}

TEST(GgufTexts, RefusesMalformedVocabularies) {
  const json good = ByteLevelMetadata();
  const auto token = [&](const std::string& text) { return WithEntry(good, "tokens", kPair, text); };
  ExpectError(Refused(token("\xFF")), kInvalidArgument, {"tokenizer.ggml.tokens", "[256]", "not UTF-8"});
  ExpectError(Refused(token("a")), kInvalidArgument, {"tokenizer.ggml.tokens", "[256] 'a' is [97] too"});
  ExpectError(Refused(token(std::string(2049, 'x'))), kInvalidArgument, {"[256]", "2049 bytes, more than 2048"});
  ExpectError(Refused(token("")), kInvalidArgument, {"tokenizer.ggml.merges", "'ab' is not in"});
  for (const int type : {0, 7}) {
    ExpectError(Refused(WithEntry(good, "token_type", 5, type)), kInvalidArgument,
                {"tokenizer.ggml.token_type", "[5]", "from 1 to 6"});
  }
  ExpectError(Refused(WithEntry(good, "token_type", 5, 6)), kInvalidArgument, {"[5] is a byte", "gpt2"});
  ExpectError(Refused(With(good, "token_type", {1, 1})), kInvalidArgument, {"has 2 entries", "260 tokens"});
  ExpectError(Refused(With(good, "tokens", {1, 2})), kInvalidArgument, {"tokenizer.ggml.tokens", "array of integers"});
}

// Rows beyond the embedding may only be without a token.
TEST(GgufTexts, TokensHaveRows) {
  EXPECT_TRUE(Refused(ByteLevelMetadata(), kUnused).ok());
  ExpectError(Refused(ByteLevelMetadata(), kThink), kInvalidArgument,
              {"tokenizer.ggml.tokens", "[258] '<think>'", "rows for 258 tokens"});
}

TEST(GgufTexts, RefusesMalformedMerges) {
  const auto refused = [](const std::string& merge) { return Refused(With(ByteLevelMetadata(), "merges", {merge})); };
  for (const char* merge : {"ab", "a b c", ""}) {
    ExpectError(refused(merge), kInvalidArgument, {"tokenizer.ggml.merges", "[0]", "space between"});
  }
  ExpectError(refused("a c"), kInvalidArgument, {"tokenizer.ggml.merges", "[0] 'a c': 'ac' is not in", "beside"});
  ExpectError(refused("a xyz"), kInvalidArgument, {"'xyz' is not in tokenizer.ggml.tokens"});
  ExpectError(refused("[PAD 259]"), kInvalidArgument, {"is not in tokenizer.ggml.tokens"});
  checkpoint::GgufMetadata metadata = MetadataFromJson(Without(ByteLevelMetadata(), "merges"));
  metadata.Insert("tokenizer.ggml.merges", std::vector<std::string>((2 << 20) + 1, "a b"));
  CheckpointDocuments documents;
  ExpectError(checkpoint::AddGgufTexts(metadata, kManyRows, &documents), kInvalidArgument,
              {"tokenizer.ggml.merges", "2097153 merges: at most 2097152"});
}

TEST(GgufTexts, RefusesIdsWithoutAToken) {
  for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "padding_token_id"}) {
    ExpectError(Refused(With(ByteLevelMetadata(), key, 260)), kInvalidArgument, {key, "260 is not from 0 to 259"});
    ExpectError(Refused(With(WithEntry(ByteLevelMetadata(), "tokens", kUnused, ""), key, kUnused)), kInvalidArgument,
                {key, "token 259"});
  }
  ExpectError(Refused(With(ByteLevelMetadata(), "add_bos_token", true)), kInvalidArgument,
              {"tokenizer.ggml.bos_token_id", "missing"});
  ExpectError(Refused(With(ByteLevelMetadata(), "add_bos_token", 1)), kInvalidArgument,
              {"tokenizer.ggml.add_bos_token", "is an integer, not a boolean"});
  json sampling = ByteLevelMetadata();
  sampling["general.sampling.temp"] = "hot";
  ExpectError(Refused(sampling), kInvalidArgument, {"general.sampling.temp", "not a number"});
}

TEST(GgufTexts, RanksNeedPlainTokensFirst) {
  const json kimi = With(ByteLevelMetadata(), "pre", "kimi-k2");
  const CheckpointDocuments documents = Documents(kimi);
  EXPECT_EQ(documents.tokenizer_json, "");
  EXPECT_THAT(documents.tiktoken_ranks, HasSubstr("YWI= 256\n"));
  const json config = json::parse(documents.tokenizer_config_json);
  EXPECT_EQ(config["tokenizer_class"], "TikTokenTokenizer");
  EXPECT_EQ(config["added_tokens_decoder"]["257"]["content"], "<|im_end|>");
  EXPECT_EQ(config["added_tokens_decoder"]["257"]["special"], true);
  EXPECT_EQ(config["added_tokens_decoder"]["258"]["special"], false);
  ExpectError(Refused(WithEntry(kimi, "token_type", 7, 3)), kInvalidArgument, {"[8]", "after one that is not"});
  ExpectError(Refused(WithEntry(kimi, "tokens", kPair, "▁")), kInvalidArgument, {"[256] '▁' does not spell bytes"});
}

TEST(GgufTexts, ScoresOrderTheMergesOfSentencePiece) {
  constexpr int32_t kAb = kFirstPiece, kMarkA = kAb + 1, kMarkAb = kAb + 2, kMark = kAb + 3, kA = kAb + 4, kB = kAb + 5;
  const json metadata = SentencePieceMetadata();
  const auto tokenizer = MakeTokenizer(Documents(metadata));
  EXPECT_THAT(tokenizer->Encode("ab", {}).value(), ElementsAre(1, kMarkAb));
  EXPECT_THAT(tokenizer->Encode("aab\n", kUntrusted).value(), ElementsAre(kMarkA, kAb, 3 + '\n'));
  EXPECT_EQ(tokenizer->Decode(Ids{kMarkAb, kMark, kA}, true), "ab a");
  // By score, and two ways to the same piece by the id of the left part.
  json reversed = metadata;
  reversed["tokenizer.ggml.scores"][kAb] = -2.0f;
  reversed["tokenizer.ggml.scores"][kMarkA] = -1.0f;
  EXPECT_EQ(json::parse(Documents(reversed).tokenizer_json)["model"]["merges"], json({"▁ a", "a b", "▁a b", "▁ ab"}));
  // The merges of the file, if it has any, are the publisher's.
  const json given = With(metadata, "merges", {"▁ a"});
  EXPECT_THAT(MakeTokenizer(Documents(given))->Encode("ab", kUntrusted).value(), ElementsAre(kMarkA, kB));
  const auto bare = MakeTokenizer(Documents(With(metadata, "add_space_prefix", false)));
  EXPECT_THAT(bare->Encode("ab", kUntrusted).value(), ElementsAre(kAb));
  EXPECT_EQ(bare->Decode(Ids{kMarkAb}, true), " ab");
  const auto without_bos = MakeTokenizer(Documents(With(metadata, "add_bos_token", false)));
  EXPECT_THAT(without_bos->Encode("ab", {}).value(), ElementsAre(kMarkAb));
}

TEST(GgufTexts, RefusesScoresThatDoNotOrder) {
  const json good = SentencePieceMetadata();
  ExpectError(Refused(Without(good, "scores")), kInvalidArgument, {"tokenizer.ggml.scores", "missing"});
  ExpectError(Refused(With(good, "scores", {1.0f})), kInvalidArgument, {"has 1 entries", "265 tokens"});
  ExpectError(Refused(With(good, "scores", std::vector<float>(265, -1000.0f))), kInvalidArgument,
              {"tokenizer.ggml.scores", "all the same", "beside"});
  checkpoint::GgufMetadata metadata = MetadataFromJson(Without(good, "scores"));
  std::vector<float> scores(265, 0.0f);
  scores[kFirstPiece] = std::numeric_limits<float>::quiet_NaN();
  metadata.Insert("tokenizer.ggml.scores", scores);
  CheckpointDocuments documents;
  ExpectError(checkpoint::AddGgufTexts(metadata, kManyRows, &documents), kInvalidArgument, {"[259]", "not a finite"});
  ExpectError(Refused(WithEntry(good, "tokens", 3 + 10, "x")), kUnimplemented,
              {"tokenizer.ggml.tokens", "no token '<0x0A>'"});
}

// Few bytes of tokens can have very many bytes of merges.
TEST(GgufTexts, BoundsTheMergesOfScores) {
  json metadata = SentencePieceMetadata();
  float score = -100;
  for (size_t length = 2; length <= 2048; ++length) {
    metadata["tokenizer.ggml.tokens"].push_back(std::string(length, 'a'));
    metadata["tokenizer.ggml.token_type"].push_back(1);
    metadata["tokenizer.ggml.scores"].push_back(score--);
  }
  ExpectError(Refused(metadata), kInvalidArgument, {"tokenizer.ggml.tokens", "merges", "bytes"});
}

}  // namespace
}  // namespace moestro::testing
