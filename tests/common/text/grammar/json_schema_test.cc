#include "common/text/grammar/json_schema.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/common/text/grammar/schema_goldens.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;

TEST(JsonSchemaTest, Objects) {
  ExpectGoldens({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"boolean"}},"required":["b","a"]})",
       {R"({"b": 1, "a": true})", R"({"b":1,"a":false})", "{\n  \"b\": -12,\n  \"a\": true\n}"},
       {R"({"a": true, "b": 1})", R"({"b": 1})", R"({"b": 1, "a": true, "c": 2})", "{    \"b\":1,\"a\":true}", "{}",
        R"({"b": 01, "a": true})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]})",
       {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
       {"{}", R"({"a":null})", R"({,"b":null})", R"({"b":null,})", R"({"b":null"c":null})", R"({"c":null,"b":null})"}},
      {R"({"type":"object","properties":{}})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"type":"object"})", {"{}", R"({"a":[1,{"b":""}]})"}, {"[]"}},
      {R"({"properties":{"ab":{"type":"integer"},"a\"":{"const":1}},"additionalProperties":{"type":"string"}})",
       {"{}", R"({"ab":1,"x":"y","":"z"})", R"({"a":"s"})", R"({"abc":"s","b":"t"})", R"({"ab":1,"a\"":1,"a\"b":""})"},
       {R"({"ab":"s"})", R"({"x":"y","ab":"s"})", R"({"\u0061b":"s"})", R"({"a\"":"s"})", R"({"x":1})"}},
      {R"({"additionalProperties":{"type":"integer"}})", {"{}", R"({"a":1, "b":2})"}, {R"({"a":"1"})"}},
      {R"({"required":["z"]})", {R"({"z":[1]})"}, {"{}"}},
      {R"({"properties":{"a":false,"b":true}})", {"{}", R"({"b":{}})"}, {R"({"a":1})"}},
  });
}

TEST(JsonSchemaTest, Arrays) {
  ExpectGoldens({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1, 2,3]", "[\n1\n]"},
       {"[1,]", "[,1]", "[1 2]"}},
      {R"({"items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"items":{"type":"integer"},"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {R"([1,"a"])"},
       {"[1]", R"(["a",1])", R"([1,"a",1])"}},
      {R"({"prefixItems":[{"type":"integer"}],"items":{"type":"boolean"},"minItems":2,"maxItems":3})",
       {"[1,true]", "[1,true,false]"},
       {"[1]", "[1,2]", "[1,true,true,true]"}},
      {R"({"type":"array"})", {"[]", R"([1,"a",[{}]])"}, {"{}"}},
      {R"({"type":"array","minItems":1})", {"[null]"}, {"[]"}},
  });
}

TEST(JsonSchemaTest, Strings) {
  ExpectGoldens({
      {R"({"type":"string"})",
       {R"("")", R"("a\"b\\c\n\u00e9\ud83d\ude00€")"},
       {"\"\n\"", R"("\x")", R"("\ud800")", R"("\udc00")", R"("\ud800\u0041")", "\"\xC3\"", "\"\x80\""}},
      {R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("€😀\n")"}, {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type":"string","minLength":3})", {R"("abc")", R"("abcdefgh")"}, {R"("ab")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("2023-02-28")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2023-13-01")", R"("2023-04-31")", R"("23-04-01")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.123+05:30")"},
       {R"("2024-02-29 23:59:59Z")", R"("2024-02-29T24:00:00Z")", R"("2024-02-29T23:59:59")"}},
      {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"type":"string","format":"email"})", {R"("a.b@c.de")"}, {R"("a@")", R"("@b.c")", R"("a..b@c")"}},
      {R"({"type":"string","format":"ipv4"})", {R"("127.0.0.255")"}, {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::1")", R"("::")", R"("fe80::1")", R"("2001:db8::")", R"("2001:DB8:0:0:8:800:200C:417A")",
        R"("1::2:3:4:5:6:7")", R"("1:2:3:4:5:6:7::")", R"("::2:3:4:5:6:7:8")", R"("::ffff:192.0.2.1")"},
       {R"("1:2:3:4:5:6:7")", R"(":")", R"("1:::2")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")", R"("12345::")",
        R"("1:2:3:4:5:6:7:8::")", R"(":1")", R"("1:")", R"("::1.2.3.400")"}},
      {R"({"type":"string","format":"duration"})",
       {R"("P1Y2M3DT4H")", R"("PT5S")", R"("P2W")"},
       {R"("P")", R"("P1YT")"}},
  });
}

TEST(JsonSchemaTest, Numbers) {
  ExpectGoldens({
      {R"({"type":"integer"})", {"0", "-1", "1234567890123456"}, {"1.0", "01", "-0", "+1", "12345678901234567"}},
      {R"({"type":"number"})", {"0", "-0.5", "1e3", "1.5E-10"}, {".5", "1.", "1e", "1e999", "-"}},
      {R"({"type":"number","minimum":-1,"exclusiveMaximum":2})",
       {"-1", "-1.0", "-0.5", "0", "0.0", "1.999", "1"},
       {"2", "2.0", "-1.01", "-2", "10", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0})", {"0.1", "0.01", "1", "123.5"}, {"0", "0.0", "-1"}},
      {R"({"type":"number","maximum":-3})", {"-3", "-3.5", "-1000"}, {"-2.9", "0", "3"}},
      {R"({"type":"integer","exclusiveMinimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
  });
  // Every integer around the bounds.
  const std::vector<std::pair<int, int>> ranges = {{0, 0},    {0, 9},     {3, 17},    {-5, 5},      {-117, -23},
                                                   {99, 101}, {-100, -1}, {100, 999}, {-999, 1234}, {7, 1007}};
  for (const auto& [min, max] : ranges) {
    const std::string bounds = "\"minimum\":" + std::to_string(min) + ",\"maximum\":" + std::to_string(max);
    const auto automaton = MakeAutomaton(kSchema, "{\"type\":\"integer\"," + bounds + "}");
    const auto at_least = MakeAutomaton(kSchema, "{\"type\":\"integer\",\"minimum\":" + std::to_string(min) + "}");
    const auto at_most = MakeAutomaton(kSchema, "{\"type\":\"integer\",\"maximum\":" + std::to_string(max) + "}");
    const auto numbers = MakeAutomaton(kSchema, "{\"type\":\"number\"," + bounds + "}");
    for (int i = -1300; i <= 1300; ++i) {
      EXPECT_EQ(Matches(automaton, std::to_string(i)), i >= min && i <= max) << i << " in " << min << " to " << max;
      EXPECT_EQ(Matches(at_least, std::to_string(i)), i >= min) << i << " from " << min;
      EXPECT_EQ(Matches(at_most, std::to_string(i)), i <= max) << i << " to " << max;
      const std::string fraction = std::to_string(i) + ".5";
      const double value = std::stod(fraction);
      EXPECT_EQ(Matches(numbers, fraction), value >= min && value <= max) << fraction << " in " << min << " to " << max;
    }
  }
}

TEST(JsonSchemaTest, Combinations) {
  ExpectGoldens({
      {R"({"enum":["a",1,null,{"x":[1,2]}]})", {R"("a")", "1", "null", R"({"x":[1,2]})"}, {R"("b")", "2"}},
      {R"({"enum":["a",1],"type":"string"})", {R"("a")"}, {"1"}},
      {R"({"const":"x\"y"})", {R"("x\"y")"}, {R"("x")"}},
      {R"({"type":["string","null"],"maxLength":1})", {R"("a")", "null"}, {R"("ab")", "1"}},
      {R"({"type":"integer","nullable":true})", {"1", "null"}, {R"("a")"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"boolean"}],"title":"x"})", {"1", "true"}, {R"("a")"}},
      {R"({"oneOf":[{"minimum":5},{"maximum":1}],"type":"integer"})", {"5", "1"}, {"3", "5.5"}},
      {R"({"allOf":[{"properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"a":{"minimum":1},"b":{"type":"null"}}}]})",
       {R"({"a":1.5})", R"({"a":1,"b":null})"},
       {"{}", R"({"a":0.5})"}},
      {R"({"allOf":[{"$ref":"#/$defs/s"}],"default":"x","$defs":{"s":{"type":"string","maxLength":2}}})",
       {R"("ab")"},
       {R"("abc")"}},
      {R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":{"const":7}}})", {"7"}, {"8"}},
      {R"({"$ref":"#/$defs/list","$defs":{"list":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},"required":["v","next"]}}})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#"}}}})",
       {"{}", R"({"c":[{},{"c":[{}]}]})"},
       {R"({"c":[1]})"}},
      {"{}", {"1", "[]", R"({"a":null})"}, {"x", ""}},
      {R"({"type":"object","properties":{"a":{}},"required":["a"],"x-note":1})", {R"({"a":[]})"}, {"{}"}},
  });
}

TEST(JsonSchemaTest, RefusesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "schema: not a JSON object"},
      {"{", "schema: not valid JSON"},
      {R"({"type":"strin"})", "#/type: is not one of"},
      {R"({"type":"array","uniqueItems":true})", "schema: #: 'uniqueItems' cannot be enforced"},
      {R"({"properties":{"a":{"contains":{}}}})", "#/properties/a: 'contains'"},
      {R"({"if":{},"then":false})", "'if' cannot be enforced"},
      {R"({"patternProperties":{"a":{},"b":{}}})", "several 'patternProperties'"},
      {R"({"properties":{"x":{}},"patternProperties":{"^a":{}}})", "'patternProperties' beside named properties"},
      {R"({"not":{}})", "false allows no value"},
      {R"({"type":"string","not":{"const":"a"}})", "'not' cannot be enforced"},
      {R"({"type":"number","not":{"type":"integer"}})", "'not' cannot be enforced"},
      {R"({"type":"object","minProperties":1})", "'minProperties' cannot be enforced"},
      {R"({"type":"object","maxProperties":1})", "'maxProperties' cannot be enforced"},
      {R"({"dependentRequired":{"a":["b"]}})", "'dependentRequired' cannot be enforced"},
      {R"({"anyOf":[false,{"not":true}]})", "#/anyOf: false allows no value"},
      {R"x({"type":"string","pattern":"a(?=b)"})x", "#/pattern: regular expression at byte"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "maxLength is below minLength"},
      {R"({"type":"string","minLength":99999})", "#/minLength: above 16384"},
      {R"({"type":"string","minLength":-1})", "is not a count"},
      {R"({"type":"array","minItems":2,"maxItems":1})", "maxItems is below minItems"},
      {R"({"prefixItems":[{}],"items":false,"minItems":2})", "minItems is above"},
      {R"({"required":["a"],"properties":{},"additionalProperties":false})", "'a' is not in properties"},
      {R"({"required":["a"],"properties":{"a":false}})", "#/properties/a: false allows no value"},
      {R"({"enum":[]})", "no value of the type"},
      {R"({"enum":["a"],"pattern":"a"})", "'pattern' beside enum"},
      {R"({"enum":[1],"minimum":2})", "no value of the type"},
      {R"({"$ref":"#/$defs/x"})", "is not in the schema"},
      {R"({"$ref":"http://x/y"})", "only references into the schema itself"},
      {R"({"$ref":"#"})", "begins with itself"},
      {R"({"allOf":[{"$ref":"#"}],"type":"object"})", "refers to itself"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "no value has both types"},
      {R"({"allOf":[{"multipleOf":4},{"multipleOf":6}]})", "'multipleOf' twice"},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       "'additionalProperties' of one part applies to 'b'"},
      {R"({"anyOf":[],"type":"object"})", "#/anyOf: is not an array"},
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "matches no text that ends"},
      {R"({"properties":[]})", "#/properties: is not an object"},
  };
  for (const auto& [schema, message] : cases) EXPECT_THAT(ErrorOf(kSchema, schema), HasSubstr(message)) << schema;
}

// What binds no value, or nothing more than is enforced anyway.
TEST(JsonSchemaTest, IgnoresWhatBindsNothing) {
  ExpectGoldens({
      {R"({"type":"array","uniqueItems":false,"contains":{},"minContains":0})", {"[1,1]"}, {"1"}},
      {R"({"items":{"type":"integer"},"maxItems":1,"uniqueItems":true})", {"[1]"}, {"[1,1]"}},
      {R"({"type":"object","minProperties":0,"dependentRequired":{},"dependentSchemas":{},"patternProperties":{}})",
       {"{}", R"({"a":1})"},
       {"1"}},
      {R"({"properties":{"a":{}},"required":["a"],"minProperties":1,"maxProperties":1})", {R"({"a":1})"}, {"{}"}},
      {R"({"type":"integer","then":false,"else":{},"if":null})", {"1"}, {"\"\""}},
      {R"({"type":"string","not":{"type":"null"}})", {R"("")"}, {"null"}},
      {R"({"type":"string","not":false,"markdownDescription":"m","id":"x","$anchor":"a","contentSchema":{},"optional":true})",
       {R"("")"},
       {"1"}},
      {R"({"type":"integer","minimum":null,"enum":null,"allOf":null,"anyOf":null,"$ref":null,"title":null})",
       {"-1"},
       {"null"}},
      {R"({"type":"object","properties":{"a":{"type":"integer","required":true}},"required":null,"additionalProperties":null})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"const":null})", {"null"}, {"1"}},
      {R"({"anyOf":[{"not":{}},{"type":"integer"}]})", {"1"}, {"null"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"not":{}}},"additionalProperties":{"not":{}}})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})", R"({"c":1})"}},
      {R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{}}}],"unevaluatedProperties":false})",
       {R"({"a":1,"b":2})"},
       {R"({"c":1})"}},
      {R"({"type":["array"],"items":[{"type":"integer"},{"type":"null"}],"additionalItems":false})",
       {"[1,null]"},
       {"[null]", "[1,null,1]"}},
      {R"({"enum":["a","abc",5,50],"maxLength":2,"minLength":1,"maximum":10,"format":"x"})",
       {R"("a")", "5"},
       {R"("abc")", "50"}},
      {R"({"allOf":[{"multipleOf":2,"minProperties":null},{"multipleOf":4}],"type":"integer"})", {"8"}, {"6"}},
  });
}

TEST(JsonSchemaTest, NamesOfRecords) {
  ExpectGoldens({
      {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"x":1})"},
       {R"({"x":"1"})"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"b":1})"},
       {R"({"c":1})", R"({"a":"1"})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":3}})",
       {R"({"abc":[]})"},
       {R"({"abcd":1})", R"({"A":1})"}},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x-a":1})"},
       {R"({"a":1})", R"({"x-a":""})"}},
      {R"({"type":"object","propertyNames":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"properties":{"a":{}},"propertyNames":{"pattern":"^a"},"additionalProperties":false})", {R"({"a":1})"}, {}},
  });
}

TEST(JsonSchemaTest, AnyJsonObject) {
  const auto automaton = MakeAutomaton(Constraint::Kind::kJsonObject, "");
  EXPECT_TRUE(Matches(automaton, R"({"a": [1, 2.5e3, "x", {"b": null}], "": true})"));
  EXPECT_FALSE(Matches(automaton, "[]"));
  EXPECT_EQ(FitOf(automaton, "{  "), Fit::kNone) << "blanks for ever";
}

}  // namespace
}  // namespace moestro::text::grammar
