// Bare text becomes JSON of the type that the schema of its argument wants.
#include "services/router/output/argument_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moestro::router {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;

// What becomes of a text where the property p has this schema.
std::string ToJson(const std::string& schema, const std::string& text, const std::string& beside = "") {
  const std::string tools = R"([{"function": {"name": "f", "parameters": {"type": "object", "properties": {"p": )" +
                            schema + "}" + beside + "}}}]";
  return ArgumentTypes(tools).ToJson("f", "p", text);
}

constexpr char kDefinitions[] = R"(, "$defs": {
    "text": {"type": "string"},
    "via": {"$ref": "#/$defs/text"},
    "a/b c": {"$ref": "#/definitions/list/1"},
    "same": {"$ref": "#/$defs/same"},
    "ping": {"anyOf": [{"$ref": "#/$defs/pong"}, {"$ref": "#/$defs/pong"}]},
    "pong": {"anyOf": [{"$ref": "#/$defs/ping"}, {"$ref": "#/$defs/ping"}]}},
  "definitions": {"list": [{"type": "integer"}, {"type": "string"}]})";

TEST(ArgumentTypesTest, AStringIsFoundWhereverTheSchemaSaysIt) {
  for (const char* schema :
       {R"({"type": "string"})", R"({"type": ["string"]})", R"({"const": "x"})", R"({"enum": ["1", "2"]})",
        R"({"$ref": "#/$defs/text"})", R"({"$ref": "#/$defs/via", "description": "d"})",
        R"({"$ref": "#/$defs/a~1b%20c"})", R"({"$ref": "#/definitions/list/1"})",
        R"({"allOf": [{"$ref": "#/$defs/text"}], "default": "1"})",
        R"({"allOf": [{"type": ["string", "integer"]}, {"type": ["string", "boolean"]}]})",
        R"({"type": "string", "anyOf": [{"minLength": 1}, {"enum": [1, "1"]}]})",
        R"({"oneOf": [{"const": "1"}, {"const": "2"}]})",
        R"({"anyOf": [{"type": "string"}, {"type": "integer"}], "enum": ["1", "true"]})"}) {
    for (const char* text : {"1", "true", "null", "[1]", "None"}) {
      EXPECT_EQ(ToJson(schema, text, kDefinitions), "\"" + std::string(text) + "\"") << schema;
    }
  }
}

TEST(ArgumentTypesTest, OtherTypesAreFoundThere) {
  for (const char* schema : {R"({"const": 3})", R"({"enum": ["auto", 1, 2.5]})", R"({"$ref": "#/definitions/list/0"})",
                             R"({"allOf": [{"type": "number"}, {"type": "integer"}]})",
                             R"({"type": ["integer", "string"], "anyOf": [{"type": "number"}, {"type": "null"}]})"}) {
    EXPECT_EQ(ToJson(schema, "3", kDefinitions), "3") << schema;
    EXPECT_EQ(ToJson(schema, "true", kDefinitions), "\"true\"") << schema;
  }
  EXPECT_EQ(ToJson(R"({"enum": ["auto", true, null]})", "True"), "true");
  EXPECT_EQ(ToJson(R"({"enum": ["auto", true, null]})", "none"), "\"none\"");
  EXPECT_EQ(ToJson(R"({"enum": [[1], {"a": 1}]})", "[1]"), "[1]");
  EXPECT_EQ(ToJson(R"({"const": 4})", "4.0"), "4.0");
  EXPECT_EQ(ToJson(R"({"type": "integer"})", "4.0"), "\"4.0\"");
  EXPECT_EQ(ToJson(R"({"type": "number"})", "123456789012345678901234567890"), "123456789012345678901234567890");
}

// What says nothing, or cannot be followed, allows everything.
TEST(ArgumentTypesTest, WithoutATypeATextIsTheJsonThatItIs) {
  for (const char* schema : {"{}", "true", "5", R"({"$ref": "#/$defs/none"})", R"({"$ref": "https://a.b/c"})",
                             R"({"$ref": 5})", R"({"$ref": "#/$defs/same"})", R"({"$ref": "#/$defs/ping"})",
                             R"({"type": "text"})", R"({"anyOf": 5, "allOf": 5, "enum": 5})"}) {
    EXPECT_EQ(ToJson(schema, "1", kDefinitions), "1") << schema;
    EXPECT_EQ(ToJson(schema, "a", kDefinitions), "\"a\"") << schema;
    EXPECT_EQ(ToJson(schema, "{'a': 1}", kDefinitions), "\"{'a': 1}\"") << schema;
  }
  EXPECT_EQ(ToJson("{}", std::string("1\0", 2)), R"("1\u0000")");
}

TEST(ArgumentTypesTest, PythonIsReadWhereAnObjectOrArrayIsWanted) {
  EXPECT_EQ(ToJson(R"({"type": "object"})", " {'a': 1, 'b': True, 'c': None}\n"), R"({"a": 1, "b": true, "c": null})");
  EXPECT_EQ(ToJson(R"({"type": ["array", "null"]})", "['a', (1, 2)]"), R"(["a", [1, 2]])");
  EXPECT_EQ(ToJson(R"({"$ref": "#"})", "{'a': 1}"), R"({"a": 1})");
  EXPECT_EQ(ToJson(R"({"type": "array"})", "{'a': 1}"), R"("{'a': 1}")");
  EXPECT_EQ(ToJson(R"({"type": "object"})", "{'a': f()}"), R"("{'a': f()}")");
  EXPECT_EQ(ToJson(R"({"type": "string"})", "{'a': 1}"), R"("{'a': 1}")");
  EXPECT_EQ(ToJson(R"({"type": "object"})", R"({"a": "it's"})"), R"({"a": "it's"})");
}

TEST(ArgumentTypesTest, PropertiesAreThoseOfTheFunction) {
  const ArgumentTypes types(R"([{"function": {"name": "f", "parameters": {"properties": {"b": {}, "a": 5}}}},
                                {"function": {"name": "g", "parameters": [1]}}])");
  EXPECT_THAT(types.PropertiesOf("f"), ElementsAre("b", "a"));
  EXPECT_THAT(types.PropertiesOf("g"), ElementsAre());
  EXPECT_THAT(types.PropertiesOf("h"), ElementsAre());
}

// Neither may take a time that grows faster than the schema.
TEST(ArgumentTypesTest, OfManyMembersAndLongReferencesNothingIsKnown) {
  std::string members;
  for (int i = 0; i < 5000; ++i) members += ", \"m" + std::to_string(i) + "\": 1";
  EXPECT_EQ(ToJson(R"({"type": "string"})", "1", members), "1");
  const std::string name(2000, 'n');
  EXPECT_EQ(ToJson(R"({"$ref": "#/)" + name + "\"}", "1", ", \"" + name + R"(": {"type": "string"})"), "1");
}

TEST(ArgumentTypesTest, AllowsStringsFollowsReferences) {
  const ordered_json root = ordered_json::parse(R"({"$defs": {"s": {"type": "string"}, "i": {"type": "integer"}}})");
  EXPECT_TRUE(AllowsStrings({{"$ref", "#/$defs/s"}}, root));
  EXPECT_FALSE(AllowsStrings({{"$ref", "#/$defs/i"}}, root));
  EXPECT_TRUE(AllowsStrings({{"$ref", "#/$defs/j"}}, root));
}

}  // namespace
}  // namespace moestro::router
