#include "services/router/http/api_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace moestro::router {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Api kApis[] = {Api::kChat, Api::kCompletions, Api::kResponses, Api::kMessages};

// Of the API, and of other servers where the API has none of the name.
std::vector<ApiField> AllFieldsOf(Api api) {
  std::vector<ApiField> all(FieldsOf(api).begin(), FieldsOf(api).end());
  for (const ApiField& field : FieldsOfOtherServers()) {
    const auto is_same = [&](const ApiField& own) { return std::string(own.path) == field.path; };
    if (std::ranges::none_of(FieldsOf(api), is_same)) all.push_back(field);
  }
  return all;
}

// The body that has `value` at the path of a field.
json BodyWith(std::string path, json value) {
  for (size_t dot = path.rfind('.'); !path.empty(); dot = path.rfind('.')) {
    std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    path.resize(dot == std::string::npos ? 0 : dot);
    if (name.ends_with("[]")) {
      name.resize(name.size() - 2);
      value = json::array({json::object(), std::move(value)});
    }
    value = json{{name, std::move(value)}};
  }
  return value;
}

// As an error tells it: the value above is the second element of each list.
std::string PlaceOf(std::string path) {
  for (size_t list = path.find("[]"); list != std::string::npos; list = path.find("[]")) path.insert(list + 1, "1");
  return path;
}

absl::Status Refusal(Api api, const json& body) {
  absl::Status status;
  text::JsonFields fields(body, "", &status);
  RefuseFields(api, fields);
  return status;
}

TEST(ApiFieldsTest, RefusedFieldsAreNamedWithTheRemedy) {
  for (const Api api : kApis) {
    for (const ApiField& field : AllFieldsOf(api)) {
      if (field.use == FieldUse::kLeftOut) continue;
      const absl::Status status = Refusal(api, BodyWith(field.path, {{"some", "thing"}}));
      EXPECT_EQ(status.ok(), field.use != FieldUse::kRefused) << field.path;
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsUnimplemented(status));
      EXPECT_THAT(std::string(status.message()), StartsWith(PlaceOf(field.path) + ": "));
      EXPECT_NE(std::string(field.remedy), "") << field.path;
      EXPECT_THAT(std::string(status.message()), HasSubstr(field.remedy));
    }
  }
}

TEST(ApiFieldsTest, ValuesThatAskForNothingPass) {
  for (const Api api : kApis) {
    for (const ApiField& field : AllFieldsOf(api)) {
      const json harmless = json::parse(field.harmless);
      ASSERT_TRUE(harmless.is_array()) << field.path;
      EXPECT_TRUE(Refusal(api, BodyWith(field.path, nullptr)).ok()) << field.path;
      EXPECT_TRUE(Refusal(api, BodyWith(field.path, "")).ok()) << field.path;
      EXPECT_TRUE(Refusal(api, BodyWith(field.path, harmless)).ok() || field.use == FieldUse::kLeftOut) << field.path;
      for (const json& value : harmless) EXPECT_TRUE(Refusal(api, BodyWith(field.path, value)).ok()) << field.path;
    }
  }
  EXPECT_FALSE(Refusal(Api::kChat, {{"modalities", {"text", "audio"}}}).ok());
  EXPECT_FALSE(Refusal(Api::kResponses, {{"include", {"message.output_text.logprobs"}}}).ok());
  EXPECT_TRUE(Refusal(Api::kChat, {{"store", true}}).ok());
  EXPECT_TRUE(Refusal(Api::kChat, {{"nobody_knows", true}}).ok());
}

TEST(ApiFieldsTest, WhatOtherServersWouldDoIsRefusedUnlessItIsOff) {
  for (const auto& [body, field] :
       {std::pair(R"({"chat_template": "{{ messages }}"})", "chat_template: "),
        {R"({"documents": [{"text": "x"}]})", "documents: "},
        {R"({"echo": true})", "echo: "},
        {R"({"best_of": 2})", "best_of: "},
        {R"({"prompt_logprobs": 0})", "prompt_logprobs: "},
        {R"({"stop_regex": "a+"})", "stop_regex: "},
        {R"({"use_beam_search": true})", "use_beam_search: "},
        {R"({"structural_tag": "{}"})", "structural_tag: "},
        {R"({"structured_outputs": {"structural_tag": "{}"}})", "structured_outputs.structural_tag: "},
        {R"({"guided_whitespace_pattern": " "})", "guided_whitespace_pattern: "},
        {R"({"grammar_lazy": true})", "grammar_lazy: "},
        {R"({"allowed_token_ids": [1]})", "allowed_token_ids: "},
        {R"({"bad_words": ["a"]})", "bad_words: "},
        {R"({"mirostat": 2})", "mirostat: "},
        {R"({"typical_p": 0.9})", "typical_p: "}}) {
    EXPECT_THAT(std::string(Refusal(Api::kChat, json::parse(body)).message()), StartsWith(field)) << body;
  }
  for (
      const char* body :
      {R"({"documents": [], "echo": false, "best_of": 1, "prompt_logprobs": false, "stop_regex": null, "bad_words": []})",
       R"({"structural_tag": "", "grammar_lazy": false, "guided_decoding_backend": "x", "structured_outputs": {}})",
       R"({"mirostat": 0, "typical_p": 1.0, "xtc_probability": 0.0, "top_n_sigma": -1, "xtc_threshold": 0.1})"}) {
    EXPECT_TRUE(Refusal(Api::kChat, json::parse(body)).ok()) << body;
  }
  EXPECT_TRUE(Refusal(Api::kCompletions, {{"echo", true}, {"best_of", 2}}).ok()) << "it has them itself";
}

TEST(ApiFieldsTest, KindsThatAreLeftOutAreNotRefused) {
  for (const char* type : {"web_search", "custom", "a_kind_of_tomorrow"}) {
    EXPECT_TRUE(IsLeftOut(Api::kChat, "tools[].type", type)) << type;
    EXPECT_TRUE(Refusal(Api::kChat, {{"tools", {{{"type", type}}}}}).ok()) << type;
  }
  EXPECT_FALSE(IsLeftOut(Api::kChat, "tools[].type", "function"));
  EXPECT_FALSE(IsLeftOut(Api::kChat, "tools[].type", ""));
  EXPECT_FALSE(IsLeftOut(Api::kChat, "messages[].role", "user"));
  EXPECT_TRUE(IsLeftOut(Api::kResponses, "input[].type", "web_search_call"));
  EXPECT_FALSE(IsLeftOut(Api::kResponses, "input[].type", "item_reference"));
  EXPECT_TRUE(IsLeftOut(Api::kMessages, "messages[].content[].type", "server_tool_use"));
  EXPECT_FALSE(IsLeftOut(Api::kMessages, "messages[].content[].type", "image"));
}

TEST(ApiFieldsTest, WhatAPathCannotEnterIsForItsReader) {
  for (const char* body : {R"({"messages": "hi"})", R"({"messages": [{"content": "hi"}, {"content": 5}]})",
                           R"({"messages": {"audio": 1}})", R"({"tool_choice": "auto", "tools": null})"}) {
    EXPECT_TRUE(Refusal(Api::kChat, json::parse(body)).ok()) << body;
  }
  const absl::Status status = Refusal(Api::kChat, json::parse(R"({"messages": [{}, {"content": [{}, "hi"]}]})"));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), StartsWith("messages[1].content[1]: "));
}

TEST(ApiFieldsTest, EveryFieldStandsOnceAndSoDoesWhatItIsIn) {
  for (const Api api : kApis) {
    std::set<std::string> paths;
    for (const ApiField& field : FieldsOf(api)) {
      std::string path = field.path;
      // What is left out stands beside what is refused.
      EXPECT_NE(paths.insert(path).second, field.use == FieldUse::kLeftOut) << path;
      if (path.find('.') == std::string::npos) continue;
      path.resize(path.rfind('.'));
      if (path.ends_with("[]")) path.resize(path.size() - 2);
      EXPECT_TRUE(paths.contains(path)) << field.path;
    }
  }
}

}  // namespace
}  // namespace moestro::router
