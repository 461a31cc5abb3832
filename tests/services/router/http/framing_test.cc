#include "services/router/http/framing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

namespace http = boost::beast::http;

// 0: nothing is wrong. 400 also for what the parser itself refuses.
int StatusOf(const std::string& fields, const std::string& version = "1.1") {
  const std::string text = absl::StrCat("POST / HTTP/", version, "\r\n", fields, "\r\n");
  http::request_parser<http::string_body> parser;
  boost::system::error_code error;
  parser.put(boost::asio::buffer(text), error);
  if (!parser.is_header_done()) return 400;
  const auto wrong = CheckFraming(parser.get(), text);
  return wrong ? wrong->status : 0;
}

TEST(CheckFraming, TakesWhatEverybodyReadsAlike) {
  for (const char* fields :
       {"Host: x\r\n", "Host:\r\n", "host: a.b-c:80\r\nContent-Length: 15\r\n", "Host: [::1]:80\r\n",
        "Host: x\r\nTransfer-Encoding: chunked\r\n", "Host: x\r\nTransfer-encoding:  CHUNKED \r\n"}) {
    EXPECT_EQ(StatusOf(fields), 0) << fields;
  }
  EXPECT_EQ(StatusOf("", "1.0"), 0);
  EXPECT_EQ(StatusOf("Content-Length: 3\r\n", "1.0"), 0);
}

TEST(CheckFraming, OneHost) {
  for (const char* fields : {"", "Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n", "Host: a b\r\n", "Host: u@x\r\n",
                             "Host: x/y\r\n", "Host: \"x\"\r\n"}) {
    EXPECT_EQ(StatusOf(fields), 400) << fields;
  }
  EXPECT_EQ(StatusOf("Host: x\r\nHost: x\r\n", "1.0"), 400);
}

TEST(CheckFraming, OneLength) {
  for (const char* length : {"15, 15", "+15", "0xf", "-1", "", "1 5", "18446744073709551631",
                             "15\r\nContent-Length: 15", "15\r\nContent-Length: 0"}) {
    EXPECT_EQ(StatusOf(absl::StrCat("Host: x\r\nContent-Length: ", length, "\r\n")), 400) << length;
  }
}

TEST(CheckFraming, NoCodingButChunked) {
  for (const char* coding :
       {"identity", "gzip", "gzip, chunked", "chunked, identity", "chunked, chunked", "xchunked", "chunked;q=1",
        "identity\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: chunked", "\"chunked\""}) {
    const int status = StatusOf(absl::StrCat("Host: x\r\nTransfer-Encoding: ", coding, "\r\n"));
    EXPECT_TRUE(status == 501 || status == 400) << coding << ": " << status;
  }
  EXPECT_EQ(StatusOf("Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400);
  EXPECT_EQ(StatusOf("Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(StatusOf("Transfer-Encoding: chunked\r\n", "1.0"), 400) << "its readers know no codings";
}

TEST(CheckFraming, NoFieldOverTwoLines) {
  EXPECT_EQ(StatusOf("Host: x\r\nTransfer-Encoding:\r\n chunked\r\n"), 400);
  EXPECT_EQ(StatusOf("Host: x\r\nA: b\r\n\tc\r\n"), 400);
}

TEST(CheckTrailer, NoFieldGoesOnInTheNextLine) {
  for (const char* sound : {"0\r\n\r\n", "0\r\nA: b\r\n\r\n", "000;x=\"a: b\"\r\n0: x\r\nB:\r\n\r\n",
                            "2\r\n\t\n\r\n0 \r\nA: b\r\n\r\n", "4\r\n\r\n a\r\n0\r\n\r\n"}) {
    EXPECT_FALSE(CheckTrailer(sound)) << sound;
  }
  for (const char* folded :
       {"0\r\nA: b\r\n c\r\n\r\n", "0\r\nA: b\r\n\t\r\nC: d\r\n\r\n", "00;x\r\nA:\r\n 0\r\n\r\n"}) {
    const auto wrong = CheckTrailer(folded);
    ASSERT_TRUE(wrong) << folded;
    EXPECT_EQ(wrong->status, 400);
  }
}

}  // namespace
}  // namespace moestro::router
