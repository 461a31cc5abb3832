#include "common/text/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"

namespace moestro::text {
namespace {

// Matches a message that contains every one of `parts`.
void ExpectInvalid(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
}

TEST(Printable, EscapesControlAndBrokenBytesAndKeepsUtf8) {
  EXPECT_EQ(Printable(std::string_view("a\n\0b", 4)), "a\\n\\x00b");
  EXPECT_EQ(Printable("\xe4\xb8\xad\xf0\x9f\x98\x80"), "\xe4\xb8\xad\xf0\x9f\x98\x80");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(Printable("\xe4\xb8"), "\\xe4\\xb8");           // truncated
}

TEST(Printable, CutsLongNames) {
  const std::string text = Printable(std::string(1000, 'x'));
  EXPECT_EQ(text, absl::StrCat(std::string(160, 'x'), "..."));
}

TEST(JsonDocument, RefusesWhatIsNotOneStrictObject) {
  ExpectInvalid(ParseJsonObject("", "f.json").status(), {"f.json", "not valid JSON"});
  ExpectInvalid(ParseJsonObject("{} x", "f.json").status(), {"f.json", "not valid JSON"});
  ExpectInvalid(ParseJsonObject("[1]", "f.json").status(), {"f.json", "not a JSON object"});
  ExpectInvalid(ParseJsonObject("{\"a\":\"\xff\"}", "f.json").status(), {"f.json", "not valid JSON"});
  ExpectInvalid(ParseJsonObject("{\"a\":1e999}", "f.json").status(), {"f.json", "not valid JSON"});
  ExpectInvalid(ParseJsonObject(std::string("{}\0x", 4), "f.json").status(), {"f.json", "NUL"});
  ExpectInvalid(ParseJsonObject(R"({"a":{"b":1,"b":2}})", "f.json").status(), {"f.json", "duplicate key 'b'"});
  ExpectInvalid(
      ParseJsonObject("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "f.json").status(),
      {"f.json", "nested deeper"});
  EXPECT_TRUE(ParseJsonObject(R"({"a":{"b":1},"c":{"b":1}})", "f.json").ok());
}

TEST(JsonFields, KeepsTheFirstProblem) {
  const auto document = ParseJsonObject(R"({"a":1.5,"b":"x","big":18446744073709551615,"s":{"n":true}})", "f.json");
  ASSERT_TRUE(document.ok());
  absl::Status status;
  JsonFields fields(*document, "f.json", &status);
  EXPECT_EQ(fields.Int("big", 3, 10), 3);
  ExpectInvalid(status, {"f.json: big: 18446744073709551615 is out of range [3, 10]"});
  EXPECT_EQ(fields.Int("a", 3, 10), 3);
  ExpectInvalid(status, {"big"});
  status = absl::OkStatus();
  fields.Sub("s").Number("n", 0, 1);
  ExpectInvalid(status, {"f.json: s: n: true is not a number"});
  status = absl::OkStatus();
  fields.Sub("b");
  ExpectInvalid(status, {"f.json: b: \"x\" is not an object"});
}

TEST(JsonDocument, BoundsTheNumberOfValuesAndKeys) {
  EXPECT_TRUE(ParseJsonObject(R"({"a":[1,2,{}]})", "f.json", 6).ok());
  ExpectInvalid(ParseJsonObject(R"({"a":[1,2,{}]})", "f.json", 5).status(), {"f.json", "more than 5 values"});
  ExpectInvalid(ParseJsonObject(R"({"a":1,"b":2,"c":3})", "f.json", 4).status(), {"f.json", "more than 4 values"});
}

TEST(JsonFieldsTest, WithoutALabelThePathBeginsTheMessage) {
  const nlohmann::json object = nlohmann::json::parse(R"({"a":{"b":{"c":"x"}}})");
  absl::Status status;
  JsonFields(object, "", &status).Sub("a").Sub("b").Int("c", 0, 1);
  EXPECT_EQ(status.message(), "a.b.c: \"x\" is not an integer");
}

TEST(JsonFieldsTest, ObjectsOfAListHaveTheirPlaces) {
  const nlohmann::json object = nlohmann::json::parse(R"({"a":[{"b":1},{"b":[{}, {"c":"x"}]},{"b":2}],"d":[{},5]})");
  absl::Status status;
  JsonFields fields(object, "", &status);
  size_t seen = 0;
  fields.ForEach("none", [&](JsonFields&) { ++seen; });
  fields.ForEach("a", [&](JsonFields& element) {
    ++seen;
    if (element.object()["b"].is_array()) element.ForEach("b", [](JsonFields& inner) { inner.IntOr("c", 0, 0, 1); });
  });
  EXPECT_EQ(seen, 2u);
  EXPECT_EQ(status.message(), "a[1].b[1].c: \"x\" is not an integer");
  status = absl::OkStatus();
  fields.ForEach("d", [](JsonFields&) {});
  EXPECT_EQ(status.message(), "d[1]: 5 is not an object");
  status = absl::OkStatus();
  JsonFields(object["a"][0], "f.json", &status).ForEach("b", [](JsonFields&) {});
  EXPECT_EQ(status.message(), "f.json: b: 1 is not a list");
}

TEST(RawField, IsTheTextAsItWasWritten) {
  const char text[] = R"( { "a" : 1 , "b":{"z": [1, "}]\\\"" ], "y":2} ,"c":"d\\" , "e":null, "f":-1.5e3} )";
  EXPECT_EQ(RawField(text, "a"), "1");
  EXPECT_EQ(RawField(text, "b"), R"({"z": [1, "}]\\\"" ], "y":2})");
  EXPECT_EQ(RawField(text, "c"), R"("d\\")");
  EXPECT_EQ(RawField(text, "e"), "null");
  EXPECT_EQ(RawField(text, "f"), "-1.5e3");
  EXPECT_EQ(RawField(text, "z"), "");
  EXPECT_EQ(RawField("{}", "a"), "");
  EXPECT_EQ(RawField(R"({"\u0061\n": 1, "n\u0061me": 2, "na\\me": 3})", "name"), "2");
  EXPECT_EQ(RawField(RawField(text, "b"), "y"), "2");
}

}  // namespace
}  // namespace moestro::text
