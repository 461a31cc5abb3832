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
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/c/"}).allowed, "");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/A"}).allowed, "");
}

TEST_F(EndpointsTest, ReadsPathsAsPeopleWriteThem) {
  Endpoints endpoints;
  for (const char* path : {"/v1/models", "/v1/models/*", "/v1/chat/completions", "/health", "/"}) {
    endpoints.Add({.method = "GET", .path = path, .handle = {}});
  }
  const auto target = [&](const std::string& path) { return endpoints.Find({.method = "GET", .path = path}).target; };
  for (const char* path :
       {"/v1/models", "/v1/models/", "/v1//models", "//v1/models//", "/models", "/models/", "/v1/v1/models"}) {
    const std::string read = target(path);
    EXPECT_EQ(read, "/v1/models") << path;
  }
  EXPECT_EQ(target("/v1/models/org/name"), "/v1/models/org/name");
  EXPECT_EQ(target("/v1//models/org/name/"), "/v1/models/org/name");
  EXPECT_EQ(target("/models/org/name"), "/v1/models/org/name");
  EXPECT_EQ(target("/chat/completions/"), "/v1/chat/completions");
  EXPECT_EQ(target("/v1/health"), "/health");
  EXPECT_EQ(target("//"), "/");
  for (const char* path : {"/v1", "/v1/", "/v2/models", "/v1/Models", "/v1/v1/v1/models", "/a/v1/models"}) {
    EXPECT_EQ(target(path), "") << path;
  }
  EXPECT_EQ(endpoints.Nearest("/v1/chat/completion"), "/v1/chat/completions");
  EXPECT_EQ(endpoints.Nearest("/openai/v1/chat/completions"), "/v1/chat/completions");
  EXPECT_EQ(endpoints.Nearest("/heatlh"), "/health");
  EXPECT_EQ(endpoints.Nearest("/v1/images/generations"), "");
  EXPECT_EQ(endpoints.Nearest(std::string(1000, 'a')), "");
}

TEST_F(EndpointsTest, APathOfItsOwnGoesBeforeAnyText) {
  endpoints_.Add({.method = "POST", .path = "/b/count", .handle = {}});
  EXPECT_EQ(endpoints_.Find({.method = "POST", .path = "/b/count"}).path, "/b/count");
  EXPECT_EQ(endpoints_.Find({.method = "POST", .path = "/b/count"}).allowed, "POST");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/b/other"}).path, "/b/*");
}

TEST_F(EndpointsTest, NamesEachPathOnce) {
  EXPECT_EQ(endpoints_.Paths(), (std::vector<std::string>{"/a", "/b/*"}));
  EXPECT_EQ(endpoints_.Find({.method = "PUT", .path = "/b/c"}).path, "/b/*");
  EXPECT_EQ(endpoints_.Find({.method = "GET", .path = "/c"}).path, "");
}

}  // namespace
}  // namespace moestro::router
