#include "services/router/http/endpoints.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

class EndpointsTest : public ::testing::Test {
 protected:
  EndpointsTest() {
    endpoints_.Add({.method = "GET", .path = "/a", .handle = {}});
    endpoints_.Add({.method = "POST", .path = "/a", .handle = {}});
    endpoints_.Add({.method = "GET", .path = "/b/*", .handle = {}});
  }
  Endpoints endpoints_;
};

TEST_F(EndpointsTest, FindsByMethodAndPath) {
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/a"}).endpoint->method, "GET");
  EXPECT_EQ(endpoints_.Find({.method = "POST", .path = "/a"}).endpoint->method, "POST");
  EXPECT_EQ(endpoints_.Find({.method = "HEAD", .path = "/a"}).endpoint->method, "GET");
  EXPECT_NE(endpoints_.Find({.method = "GET", .path = "/b/c/d"}).endpoint, nullptr);
}

TEST_F(EndpointsTest, TellsWhatAPathTakes) {
  const Endpoints::Found found = endpoints_.Find({.method = "PUT", .path = "/a"});
  EXPECT_EQ(found.endpoint, nullptr);
  EXPECT_EQ(found.allowed, "GET, HEAD, POST");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/b/"}).allowed, "");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/A"}).allowed, "");
}

TEST_F(EndpointsTest, NamesEachPathOnce) {
  EXPECT_EQ(endpoints_.Paths(), (std::vector<std::string>{"/a", "/b/*"}));
  EXPECT_EQ(endpoints_.Find({.method = "PUT", .path = "/b/c"}).path, "/b/*");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/c"}).path, "");
}

}  // namespace
}  // namespace moestro::router
