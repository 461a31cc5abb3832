#include "services/router/http/api_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace moestro::router {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Api kApis[] = {Api::kChat, Api::kCompletions, Api::kResponses, Api::kMessages};

absl::Status Refusal(Api api, const json& body) {
  absl::Status status;
  text::JsonFields fields(body, "", &status);
  RefuseFields(api, fields);
  return status;
}

TEST(ApiFieldsTest, RefusedFieldsAreNamedWithTheRemedy) {
  for (const Api api : kApis) {
    for (const ApiField& field : FieldsOf(api)) {
      const absl::Status status = Refusal(api, {{field.name, {{"some", "thing"}}}});
      EXPECT_EQ(status.ok(), field.use != FieldUse::kRefused) << field.name;
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsUnimplemented(status));
      EXPECT_THAT(std::string(status.message()), StartsWith(std::string(field.name) + ": "));
      EXPECT_NE(std::string(field.remedy), "") << field.name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(field.remedy));
    }
  }
}

TEST(ApiFieldsTest, ValuesThatAskForNothingPass) {
  for (const Api api : kApis) {
    for (const ApiField& field : FieldsOf(api)) {
      const json harmless = json::parse(field.harmless);
      ASSERT_TRUE(harmless.is_array()) << field.name;
      EXPECT_TRUE(Refusal(api, {{field.name, nullptr}}).ok()) << field.name;
      EXPECT_TRUE(Refusal(api, {{field.name, harmless}}).ok()) << field.name;
      for (const json& value : harmless) EXPECT_TRUE(Refusal(api, {{field.name, value}}).ok()) << field.name;
    }
  }
  EXPECT_FALSE(Refusal(Api::kChat, {{"modalities", {"text", "audio"}}}).ok());
  EXPECT_FALSE(Refusal(Api::kResponses, {{"include", {"message.output_text.logprobs"}}}).ok());
  EXPECT_FALSE(Refusal(Api::kChat, {{"store", true}}).ok());
  EXPECT_TRUE(Refusal(Api::kChat, {{"nobody_knows", true}}).ok());
}

TEST(ApiFieldsTest, EveryFieldStandsOnce) {
  for (const Api api : kApis) {
    std::set<std::string> names;
    for (const ApiField& field : FieldsOf(api)) EXPECT_TRUE(names.insert(field.name).second) << field.name;
  }
}

}  // namespace
}  // namespace moestro::router
