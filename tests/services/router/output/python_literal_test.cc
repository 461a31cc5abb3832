#include "services/router/output/python_literal.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace moestro::router {
namespace {

TEST(PythonLiteralTest, BecomesJson) {
  const std::pair<const char*, const char*> kLiterals[] = {
      {"{}", "{}"},
      {"[]", "[]"},
      {"()", "[]"},
      {" [ 1 , 2 , ] \n", "[1, 2]"},
      {"(1,)", "[1]"},
      {"{'a': None, \"b\": True, 'c': False,}", R"({"a": null, "b": true, "c": false})"},
      {"{'a': {'b': [{'c': ('d', 'e')}]}}", R"({"a": {"b": [{"c": ["d", "e"]}]}})"},
      {"[1, -2, 0, 1.5, 1., .5, -.5, 1e5, 2.E-3]", "[1, -2, 0, 1.5, 1.0, 0.5, -0.5, 1e5, 2.0E-3]"},
      {"[123456789012345678901234567890]", "[123456789012345678901234567890]"},
      {R"(['it\'s', "a \"b\"", 'say "hi"', "it's"])", R"(["it's", "a \"b\"", "say \"hi\"", "it's"])"},
      {R"(['\n\t\\ \d', '\x41\u00e9\U0001f600', 'naïve'])", R"(["\n\t\\ \\d", "Aé😀", "naïve"])"},
      {"['a\\\nb']", R"(["ab"])"},
      {"{'a': 1, 'b': 2, 'a': 3}", R"({"a": 3, "b": 2})"},
      {"{'a': \"</x>\"\n}", R"({"a": "</x>"})"}};
  for (const auto& [text, expected] : kLiterals) {
    const auto json = JsonOfPythonLiteral(text);
    ASSERT_TRUE(json) << text;
    EXPECT_EQ(*json, expected) << text;
    EXPECT_TRUE(nlohmann::json::accept(*json)) << *json;
  }
}

TEST(PythonLiteralTest, WhatIsNoneStaysText) {
  for (const char* text : {"",
                           " ",
                           "1",
                           "'a'",
                           "None",
                           "(1)",
                           "{1}",
                           "{1: 2}",
                           "{'a'}",
                           "{'a': }",
                           "{'a': 1",
                           "{'a': 1}}",
                           "{'a': 1} b",
                           "{'a' 1}",
                           "{'a': 1 'b': 2}",
                           "{,}",
                           "[,]",
                           "[1 2]",
                           "[1, 2",
                           "[1)",
                           "(1]",
                           "['a]",
                           "['a\nb']",
                           "['a\\",
                           "['\\x4']",
                           "['\\xgg']",
                           "['\\ud83d']",
                           "['\\U00110000']",
                           "['\\101']",
                           "['\\N{DASH}']",
                           "['a' 'b']",
                           "[u'a']",
                           "[b'a']",
                           "[true]",
                           "[null]",
                           "[nan]",
                           "[inf]",
                           "[-None]",
                           "[+1]",
                           "[--1]",
                           "[1_000]",
                           "[0x1f]",
                           "[007]",
                           "[1j]",
                           "[.]",
                           "[-]",
                           "[1..2]",
                           "[f()]",
                           "[a]",
                           "[1 + 2]",
                           "{**a}",
                           "[*a]",
                           "[...]",
                           "[# a\n1]"}) {
    EXPECT_EQ(JsonOfPythonLiteral(text).value_or(""), "") << text;
  }
}

TEST(PythonLiteralTest, NestingIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(JsonOfPythonLiteral(nested(64)), nested(64));
  EXPECT_FALSE(JsonOfPythonLiteral(nested(65)));
  EXPECT_FALSE(JsonOfPythonLiteral(std::string(1'000'000, '[')));
}

}  // namespace
}  // namespace moestro::router
