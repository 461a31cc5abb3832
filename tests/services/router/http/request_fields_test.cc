#include "services/router/http/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

struct Reading {
  explicit Reading(const std::string& body) : text(body), json(nlohmann::json::parse(body)) {}
  const std::string text;
  const nlohmann::json json;
  absl::Status status;
  text::JsonFields fields{json, "", &status};
};

TEST(RequestFieldsTest, ReadsWhatIsSet) {
  Reading reading(R"({"max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": -1,
                      "seed": -2, "stop_token_ids": [1, 2], "ignore_eos": true, "unknown": {}})");
  const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
  ASSERT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(input.max_tokens, 7u);
  EXPECT_EQ(input.temperature, 0.5f);
  EXPECT_EQ(input.top_p, 0.25f);
  EXPECT_EQ(input.top_k, 0);
  EXPECT_EQ(input.seed, UINT64_MAX - 1);
  EXPECT_THAT(input.stop_ids, ElementsAre(1, 2));
  EXPECT_TRUE(input.ignore_eos);
}

TEST(RequestFieldsTest, ReadsPenaltiesBiasesAndStops) {
  Reading reading(R"({"stop": ["a", "b"], "min_p": 0.1, "presence_penalty": -1, "frequency_penalty": 1,
                      "repeat_penalty": 1.5, "logit_bias": {"5": -100, "7": 1.5}})");
  const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
  ASSERT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_THAT(input.stop, ElementsAre("a", "b"));
  EXPECT_EQ(input.min_p, 0.1f);
  EXPECT_EQ(input.presence_penalty, -1.0f);
  EXPECT_EQ(input.frequency_penalty, 1.0f);
  EXPECT_EQ(input.repetition_penalty, 1.5f);
  EXPECT_THAT(input.logit_bias, ElementsAre(std::pair(5, -100.0f), std::pair(7, 1.5f)));
}

TEST(RequestFieldsTest, ReadsTheWay) {
  for (const PromptWay way : kPromptWays) {
    Reading reading(absl::StrCat(R"({"way": ")", WayName(way), "\"}"));
    EXPECT_EQ(ReadGenerateFields(reading.fields, reading.text).way, way);
  }
  Reading none("{}");
  EXPECT_EQ(ReadGenerateFields(none.fields, none.text).way, std::nullopt);
  Reading other(R"({"way": "in place"})");
  ReadGenerateFields(other.fields, other.text);
  EXPECT_EQ(other.status.message(), "way: must be chunked, in_place or streamed");
}

TEST(RequestFieldsTest, ReadsConstraints) {
  using Kind = Constraint::Kind;
  for (const auto& [text, kind, wanted] :
       {std::tuple(R"({"response_format": {"type": "text"}})", Kind::kNone, ""),
        {R"({"response_format": {"type": "json_object"}})", Kind::kJsonObject, ""},
        {R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"z": 1, "a": 2}}}})",
         Kind::kJsonSchema, R"({"z": 1, "a": 2})"},
        {R"({"json_schema": {"z": 1}})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"grammar": "root ::= x"})", Kind::kGrammar, "root ::= x"},
        // Forms of llama-server, TGI and others.
        {R"({"response_format": {"type": "json_schema", "schema": {"z": 1}}})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"response_format": {"type": "json", "value": {"z": 1}}})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"response_format": {"type": "regex", "pattern": "a+"}})", Kind::kRegex, "a+"},
        {R"({"response_format": {"type": "grammar", "grammar": "root ::= x"}})", Kind::kGrammar, "root ::= x"},
        {R"({"json_schema": "{\"z\": 1}"})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"grammar": {"type": "regex", "value": "a+"}})", Kind::kRegex, "a+"},
        {R"({"grammar": {"type": "json", "value": {"z": 1}}})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"guided_json": {"z": 1}, "grammar": "", "regex": null})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"guided_json": "{\"z\": 1}"})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"guided_regex": "a+"})", Kind::kRegex, "a+"},
        {R"({"guided_choice": ["a", "\"\\", "x\ny"]})", Kind::kGrammar, R"(root ::= "a" | "\"\\" | "x\x0ay")"},
        {R"({"guided_grammar": "root ::= x"})", Kind::kGrammar, "root ::= x"},
        {R"({"guided_grammar": "x", "structured_outputs": {"grammar": "x"}})", Kind::kGrammar, "x"},
        {R"({"guided_json_object": true})", Kind::kJsonObject, ""},
        {R"({"regex": "a+"})", Kind::kRegex, "a+"},
        {R"({"ebnf": "root ::= x"})", Kind::kGrammar, "root ::= x"},
        {R"({"regex_pattern": "a+"})", Kind::kRegex, "a+"},
        {R"({"structured_outputs": {"json": {"z": 1}}})", Kind::kJsonSchema, R"({"z": 1})"},
        {R"({"structured_outputs": {"regex": "a+", "json_object": false}})", Kind::kRegex, "a+"},
        {R"({"guided_decoding": {"choice": ["a"]}})", Kind::kGrammar, R"(root ::= "a")"}}) {
    Reading reading(text);
    const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
    ASSERT_TRUE(reading.status.ok()) << reading.status;
    EXPECT_EQ(input.constraint.kind, kind) << text;
    EXPECT_EQ(input.constraint.text, wanted) << text;
  }
}

// -1 is the word of llama-server and vLLM for "choose".
TEST(RequestFieldsTest, MinusOneIsTheDefault) {
  Reading reading(R"({"max_tokens": -1, "seed": -1, "top_k": -1})");
  const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
  ASSERT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(input.max_tokens, 0u);
  EXPECT_FALSE(input.seed);
  EXPECT_EQ(input.top_k, 0);
  Reading more(R"({"max_tokens": 1000000000000})");
  EXPECT_EQ(ReadGenerateFields(more.fields, more.text).max_tokens, UINT32_MAX);
}

TEST(RequestFieldsTest, ConstraintsThatCannotBeKeptAreRefusedByName) {
  for (const auto& [text, field] :
       {std::pair(R"({"guided_choice": []})", "guided_choice: "),
        {R"({"guided_choice": [1]})", "guided_choice: "},
        {R"({"guided_regex": 5})", "guided_regex: "},
        {R"({"structured_outputs": "json"})", "structured_outputs: "},
        {R"({"grammar": {"type": "lark", "value": "x"}})", "grammar.type: "},
        {R"({"grammar": {"type": "regex"}})", "grammar.value: "},
        {R"({"guided_regex": "a", "guided_json": {}})", "guided_regex: asks for one form"},
        {R"({"regex": "a", "response_format": {"type": "json_object"}})", "response_format: asks for one form"},
        {R"({"response_format": {"type": "structural_tag"}})", "response_format.type: "}}) {
    Reading reading(text);
    ReadGenerateFields(reading.fields, reading.text);
    EXPECT_THAT(std::string(reading.status.message()), StartsWith(field));
  }
}

TEST(RequestFieldsTest, ReadsFieldsOfOtherServers) {
  for (const auto& [text, keeps] : {std::pair(R"({"include_stop_str_in_output": true})", true),
                                    {R"({"no_stop_trim": true})", true},
                                    {R"({"include_stop_str_in_output": false, "no_stop_trim": true})", false}}) {
    Reading reading(text);
    EXPECT_EQ(ReadGenerateFields(reading.fields, reading.text).keep_stop_text, keeps) << text;
  }
  Reading reading(R"({"n_predict": 7, "skip_special_tokens": false, "cache_salt": "mine"})");
  const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
  ASSERT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(input.max_tokens, 7u);
  EXPECT_TRUE(input.keep_special_tokens);
  EXPECT_EQ(input.cache_scope, "mine");
  Reading both(R"({"n_predict": 7, "max_tokens": 5})");
  EXPECT_EQ(ReadGenerateFields(both.fields, both.text).max_tokens, 5u);
}

TEST(RequestFieldsTest, TheLeastTokensAreThoseOfAnAnswerWithoutAnEnd) {
  for (const auto& [text, fine] : {std::pair(R"({"min_tokens": 0})", true),
                                   {R"({"min_tokens": 5, "ignore_eos": true, "max_tokens": 9})", true},
                                   {R"({"min_tokens": 5})", false},
                                   {R"({"min_tokens": 5, "ignore_eos": true, "stop": "x"})", false},
                                   {R"({"min_tokens": 5, "ignore_eos": true, "stop_token_ids": [1]})", false}}) {
    Reading reading(text);
    ReadGenerateFields(reading.fields, reading.text);
    EXPECT_EQ(reading.status.ok(), fine) << text;
    EXPECT_TRUE(fine || absl::IsUnimplemented(reading.status));
  }
}

TEST(RequestFieldsTest, NullCountsAsAbsent) {
  Reading reading(R"({"max_tokens": null, "temperature": null, "seed": null, "stream_options": null})");
  const GenerateInput input = ReadGenerateFields(reading.fields, reading.text);
  const StreamFields stream = ReadStreamFields(reading.fields);
  ASSERT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(input.max_tokens, 0u);
  EXPECT_FALSE(input.temperature || input.seed);
  EXPECT_FALSE(stream.stream || stream.include_usage);
}

TEST(RequestFieldsTest, WrongTypesNameTheField) {
  for (const auto& [text, field] :
       {std::pair(R"({"temperature": "1"})", "temperature: "),
        {R"({"top_k": 1.5})", "top_k: "},
        {R"({"seed": 1e30})", "seed: "},
        {R"({"max_tokens": 0})", "max_tokens: "},
        {R"({"max_tokens": 1e30})", "max_tokens: "},
        {R"({"stop_token_ids": 5})", "stop_token_ids: "},
        {R"({"stop_token_ids": ["a"]})", "stop_token_ids: "},
        {R"({"stop": 5})", "stop: "},
        {R"({"stop": [5]})", "stop: "},
        {R"({"logit_bias": {"x": 1}})", "logit_bias: "},
        {R"({"logit_bias": {"1": "x"}})", "logit_bias: "},
        {R"({"response_format": {"type": "xml"}})", "response_format.type: "},
        {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema.schema: "},
        {R"({"response_format": {"type": "json_object", "schema": 5}})", "response_format.schema: "},
        {R"({"ignore_eos": 1})", "ignore_eos: "}}) {
    Reading reading(text);
    ReadGenerateFields(reading.fields, reading.text);
    EXPECT_THAT(std::string(reading.status.message()), StartsWith(field));
  }
  Reading reading(R"({"stream_options": {"include_usage": 1}})");
  ReadStreamFields(reading.fields);
  EXPECT_THAT(std::string(reading.status.message()), StartsWith("stream_options.include_usage: "));
}

TEST(RequestFieldsTest, ChoicesHaveSeedsInARow) {
  GenerateInput input;
  input.prompt = TokenList{1};
  EXPECT_FALSE(Repeat(input, 2)[1].seed);
  input.seed = 5;
  const auto inputs = Repeat(input, 3);
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[2].seed, 7u);
  EXPECT_EQ(std::get<TokenList>(inputs[2].prompt), TokenList{1});
}

}  // namespace
}  // namespace moestro::router
