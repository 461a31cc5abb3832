#include "services/router/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

TEST(RouterConfigTest, DefaultsAreThePolicysOwn) {
  const RouterConfig config;
  ASSERT_TRUE(ValidateRouterConfig(config).ok()) << ValidateRouterConfig(config);
  const PathSettings settings = PathSettingsOf(config);
  EXPECT_EQ(settings.unified, PathSettings().unified);
  EXPECT_EQ(settings.chunked_below_tokens, PathSettings().chunked_below_tokens);
  EXPECT_EQ(settings.decode_idle_window, PathSettings().decode_idle_window);
}

// Or every restart of a busy role fails the requests that wait for it.
TEST(RouterConfigTest, RequestsWaitForARoleThatDrainsAndStarts) {
  const RouterConfig config;
  EXPECT_GE(config.recovery_seconds, config.node.drain_seconds + 15);
}

TEST(RouterConfigTest, SettingsReachThePolicy) {
  RouterConfig config;
  config.mode = PathMode::kUnified;
  config.chunked_below_tokens = 7;
  config.decode_idle_window_seconds = 9;
  ASSERT_TRUE(ValidateRouterConfig(config).ok());
  const PathSettings settings = PathSettingsOf(config);
  EXPECT_TRUE(settings.unified);
  EXPECT_EQ(settings.chunked_below_tokens, 7u);
  EXPECT_EQ(settings.decode_idle_window, std::chrono::seconds(9));
}

// Or whoever finds the port may use the machine.
TEST(RouterConfigTest, AnAddressThatOthersReachNeedsKeys) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", ":1", "192.168.1.2:1", "host:1"}) {
    RouterConfig config;
    config.grpc_address = address;
    const absl::Status status = ValidateRouterConfig(config);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--keys-file"));
    config.allow_anonymous = true;
    EXPECT_TRUE(ValidateRouterConfig(config).ok()) << address;
    config.allow_anonymous = false;
    config.keys_file = "keys.toml";
    EXPECT_TRUE(ValidateRouterConfig(config).ok()) << address;
    config.allow_anonymous = true;
    EXPECT_THAT(std::string(ValidateRouterConfig(config).message()), HasSubstr("--allow-anonymous"));
    config.tls.key = "key.pem";
    EXPECT_THAT(std::string(ValidateRouterConfig(config).message()), HasSubstr("--tls-key"));
  }
  for (const char* address : {"127.0.0.1:0", "localhost:1", "[::1]:1", "127.0.0.2:1"}) {
    RouterConfig config;
    config.grpc_address = address;
    EXPECT_TRUE(ValidateRouterConfig(config).ok()) << address;
  }
}

TEST(RouterConfigTest, WrongFlagsAreNamed) {
  const std::pair<const char*, std::function<void(RouterConfig&)>> cases[] = {
      {"--chunked-below-tokens", [](RouterConfig& config) { config.chunked_below_tokens = -1; }},
      {"--decode-idle-window-seconds", [](RouterConfig& config) { config.decode_idle_window_seconds = -1; }},
      {"--default-max-tokens", [](RouterConfig& config) { config.default_max_tokens = -1; }},
      {"--model-aliases",
       [](RouterConfig& config) {
         config.model_aliases = {"a", ""};
       }},
      {"--queue-limit", [](RouterConfig& config) { config.queue_limit = 0; }},
      {"--write-stall-seconds", [](RouterConfig& config) { config.write_stall_seconds = 0; }},
      {"--grpc-address", [](RouterConfig& config) { config.grpc_address = "localhost"; }},
  };
  for (const auto& [flag, spoil] : cases) {
    RouterConfig config;
    spoil(config);
    const absl::Status status = ValidateRouterConfig(config);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr(flag));
  }
}

}  // namespace
}  // namespace moestro::router
