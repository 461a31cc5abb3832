#include "services/router/http/call_arguments.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro::router {
namespace {

std::string Written(const std::string& arguments) {
  return DumpWithArguments({{"before", {1, "a\"b"}}, {"input", ArgumentsObject(arguments)}, {"after", nullptr}});
}
std::string Around(const std::string& object) {
  return R"({"before":[1,"a\"b"],"input":)" + object + R"(,"after":null})";
}

TEST(CallArgumentsTest, NumbersKeepTheirDigits) {
  const std::string digits(400, '7');
  const std::string object =
      R"({"a":18446744073709551616,"b":-9223372036854775809,"c":0.10000000000000000001,"d":1e999,"e":)" + digits +
      R"(,"f":"18446744073709551616","g":[1.0,{"h":1E+2}]})";
  EXPECT_EQ(Written(object), Around(object));
}

TEST(CallArgumentsTest, AnObjectIsOnOneLineAndItsTextsStay) {
  EXPECT_EQ(Written("\n{ \"a b\" :\t[ 1 ,\r\n 2 ] , \"c\": \"d  \\\" e\\\\\", \"f\" : { } }\n"),
            Around(R"({"a b":[1,2],"c":"d  \" e\\","f":{}})"));
}

TEST(CallArgumentsTest, WhatIsNoObjectIsPartOfOne) {
  const std::pair<const char*, const char*> kTexts[] = {{"", ""},
                                                        {"{\"a\": ", "{\\\"a\\\": "},
                                                        {"[1]", "[1]"},
                                                        {"{\"a\": 1 2}", "{\\\"a\\\": 1 2}"},
                                                        {"{\"a\": 007}", "{\\\"a\\\": 007}"},
                                                        {"{\"a\": 1.}", "{\\\"a\\\": 1.}"},
                                                        {"{\"a\": \"\xff\"}", "{\\\"a\\\": \\\"\xEF\xBF\xBD\\\"}"},
                                                        {"{\"a\": 1}}", "{\\\"a\\\": 1}}"}};
  for (const auto& [text, quoted] : kTexts) {
    EXPECT_EQ(Written(text), Around("{\"partial_json\":\"" + std::string(quoted) + "\"}")) << text;
  }
  EXPECT_EQ(Written(std::string("{}\0", 3)), Around(R"({"partial_json":"{}\u0000"})"));
}

}  // namespace
}  // namespace moestro::router
