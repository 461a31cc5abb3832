#include "services/router/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

constexpr char kType[] = "multipart/form-data; boundary=xyz";

std::string Part(const std::string& head, const std::string& contents) {
  return "--xyz\r\n" + head + "\r\n\r\n" + contents + "\r\n";
}

TEST(MultipartTest, ReadsPartsAsTheyAre) {
  const std::string contents = "{\"a\": 1}\n--xy\r\n\0 --xyz";
  const std::string body =
      Part("Content-Disposition: form-data; name=\"purpose\"", "batch") +
      Part("Content-Type: a/b\r\ncontent-disposition: form-data; filename=\"a;\\\"b\"; name=file", contents) +
      "--xyz--\r\n";
  const auto parts = ParseForm("Multipart/Form-Data; charset=utf-8; boundary=\"xyz\"", body);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].contents, "batch");
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].filename, "a;\"b");
  EXPECT_EQ((*parts)[1].contents, contents);
}

TEST(MultipartTest, WhatIsNoneIsRefused) {
  const std::string part = Part("Content-Disposition: form-data; name=a", "x");
  EXPECT_FALSE(ParseForm("application/json", part + "--xyz--").ok());
  EXPECT_FALSE(ParseForm("multipart/form-data", part + "--xyz--").ok());
  EXPECT_FALSE(ParseForm("multipart/form-data; boundary=" + std::string(71, 'x'), part).ok());
  for (const std::string& body :
       {std::string(), std::string("x"), std::string("--xyz"), std::string("--xyzz"), part, part + "--xyz",
        std::string("--xyz\r\nname: a\r\n"), std::string("--xyz\r\n\r\n\r\nx"), Part("X: y", "x") + "--xyz--",
        Part("Content-Disposition: form-data", "x") + "--xyz--",
        Part("Content-Disposition: form-data; name", "") + "--xyz--"}) {
    EXPECT_FALSE(ParseForm(kType, body).ok()) << body;
  }
}

// Every cut of a good body is refused, and none is read beyond its end.
TEST(MultipartTest, ATornBodyIsRefused) {
  const std::string body = Part("Content-Disposition: form-data; name=\"a\"", "x") + "--xyz--";
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(ParseForm(kType, std::string(body, 0, size)).ok()) << size;
  }
  EXPECT_TRUE(ParseForm(kType, body).ok());
}

TEST(MultipartTest, PartsAreBounded) {
  std::string body;
  for (int i = 0; i < 17; ++i) body += Part("Content-Disposition: form-data; name=a", "x");
  EXPECT_FALSE(ParseForm(kType, body + "--xyz--").ok());
}

}  // namespace
}  // namespace moestro::router
