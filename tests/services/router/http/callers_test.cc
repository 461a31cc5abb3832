#include "services/router/http/callers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

const CallerRules kKeylessLoopback{.keyless = true, .loopback = true};

TEST(CheckCaller, NamesThatNoPublicServerGivesOut) {
  for (const char* host : {"localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]", "[::1]:8080", "x",
                           "192.168.1.7:80", "node.local", "a.localhost:1", "api.internal", ""}) {
    EXPECT_TRUE(CheckCaller(kKeylessLoopback, host, "").ok()) << host;
  }
}

TEST(CheckCaller, AForeignNameIsRefusedWithItsRemedy) {
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
                           "evil.local.example", "[::1].evil.example", "1.2.3", "."}) {
    const absl::Status status = CheckCaller(kKeylessLoopback, host, "");
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << host;
    EXPECT_THAT(status.message(), HasSubstr("--http-host")) << host;
  }
}

TEST(CheckCaller, NamesThatWereGiven) {
  CallerRules rules = kKeylessLoopback;
  rules.hosts = {"ai.example.org", "b.example"};
  EXPECT_TRUE(CheckCaller(rules, "AI.example.org:443", "").ok());
  EXPECT_TRUE(CheckCaller(rules, "b.example", "").ok());
  EXPECT_FALSE(CheckCaller(rules, "c.example", "").ok());
  rules.loopback = false;
  EXPECT_FALSE(CheckCaller(rules, "c.example", "").ok()) << "whoever gives names means these";
  rules.hosts = {"*"};
  EXPECT_TRUE(CheckCaller(rules, "c.example", "").ok());
}

TEST(CheckCaller, OthersGiveAnOpenAddressItsNames) {
  EXPECT_TRUE(CheckCaller({.keyless = true}, "node.example", "").ok());
}

TEST(CheckCaller, PagesFromElsewhere) {
  for (const char* origin : {"https://evil.example", "http://evil.example", "null", "http://localhost:3000",
                             "http://localhost", "HTTPS://evil.example", "http://x.evil.example"}) {
    const absl::Status status = CheckCaller(kKeylessLoopback, "localhost:8080", origin);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << origin;
    EXPECT_THAT(status.message(), HasSubstr("--cors-origin")) << origin;
  }
}

TEST(CheckCaller, ThisServersOwnPageAndProgramsOfTheUser) {
  for (const char* origin : {"", "http://localhost:8080", "https://LOCALHOST:8080", "vscode-webview://1a", "app://x"}) {
    EXPECT_TRUE(CheckCaller(kKeylessLoopback, "localhost:8080", origin).ok()) << origin;
  }
}

TEST(CheckCaller, PagesThatWereNamed) {
  CallerRules rules = kKeylessLoopback;
  rules.cors_origin = "https://example.org";
  EXPECT_TRUE(CheckCaller(rules, "localhost", "https://example.org").ok());
  EXPECT_FALSE(CheckCaller(rules, "localhost", "https://example.org.evil.example").ok());
  rules.cors_origin = "*";
  EXPECT_TRUE(CheckCaller(rules, "localhost", "https://evil.example").ok());
}

TEST(CheckCaller, WhereAKeyIsNeededNoPageHasOne) {
  EXPECT_TRUE(CheckCaller({.loopback = true}, "evil.example", "https://evil.example").ok());
}

}  // namespace
}  // namespace moestro::router
