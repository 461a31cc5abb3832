#include "services/router/access/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/access/api_key.h"
#include "services/router/access/retry_after.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using access::Endpoint;
using ::testing::HasSubstr;
using ::testing::Not;

class AccessControlTest : public ::testing::Test {
 protected:
  AccessControlTest() { spdlog::set_level(spdlog::level::off); }
  ~AccessControlTest() override { std::filesystem::remove(path_); }

  // Adds a key to the file and returns it.
  std::string Add(const access::KeyEntry& entry) const {
    const std::string key = *access::NewApiKey();
    EXPECT_EQ(access::AddKey(path_, entry, key), absl::OkStatus());
    return key;
  }
  std::string Add(const char* name) const { return Add(access::KeyEntry{.name = name}); }

  AccessControl Make() {
    return AccessControl(path_, registry_, clock_, [this] { return now_; });
  }

  static std::string NameOf(AccessControl& access, const std::string& key) {
    const auto tenant = access.Admit({.authorization = {}, .api_key = key}, Endpoint::kGenerate);
    return tenant.ok() ? (*tenant)->name() : absl::StatusCodeToString(tenant.status().code());
  }

  double Refused(const std::string& reason) {
    return registry_
        .AddCounter("moestro_access_refused_total", "Calls refused because of their API key", {{"reason", reason}})
        .Value();
  }
  double FailedReloads() {
    return registry_
        .AddCounter("moestro_access_reloads_failed_total",
                    "Times that the file of API keys had an error; the keys before it stay")
        .Value();
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "access_control_", getpid(), ".toml");
  MetricsRegistry registry_{"router"};
  testing::FakeRequestClock clock_;
  absl::Time now_ = absl::FromUnixSeconds(1800000000);
};

TEST_F(AccessControlTest, WithoutAFileEverybodyMayCall) {
  AccessControl access("", registry_, clock_);
  ASSERT_TRUE(access.Load().ok());
  EXPECT_FALSE(access.needs_key());
  for (const Endpoint endpoint : access::kEndpoints) EXPECT_TRUE(access.Admit({}, endpoint).ok());
  EXPECT_EQ((*access.Identify({}))->name(), "anonymous");
  EXPECT_EQ(NameOf(access, "moe_whatever"), "anonymous");
}

TEST_F(AccessControlTest, AKeyNamesItsTenant) {
  const std::string alice = Add("alice"), bob = Add("bob");
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  EXPECT_TRUE(access.needs_key());
  EXPECT_EQ(NameOf(access, alice), "alice");
  EXPECT_EQ(NameOf(access, bob), "bob");
  for (const std::string& header : {"Bearer " + bob, "bearer  " + bob, bob}) {
    const auto tenant = access.Admit({.authorization = header, .api_key = {}}, Endpoint::kScore);
    ASSERT_TRUE(tenant.ok()) << header << tenant.status();
    EXPECT_EQ((*tenant)->name(), "bob");
  }
}

TEST_F(AccessControlTest, WithoutAValidKeyNobodyMayCall) {
  const std::string alice = Add("alice");
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  EXPECT_TRUE(absl::IsUnauthenticated(access.Admit({}, Endpoint::kGenerate).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(access.Identify({}).status()));
  EXPECT_EQ(Refused("missing"), 2);
  const std::string wrong[] = {*access::NewApiKey(), alice.substr(0, 35), alice + "x", "x" + alice.substr(1),
                               std::string(1 << 16, 'a')};
  for (const std::string& key : wrong) EXPECT_EQ(NameOf(access, key), "UNAUTHENTICATED");
  EXPECT_EQ(Refused("unknown"), 5);
  const absl::Status status = access.Admit({.authorization = "Basic YTpi", .api_key = {}}, Endpoint::kScore).status();
  EXPECT_TRUE(absl::IsUnauthenticated(status));
}

// It may be asked as often as a client likes, on the event loop, without a key.
TEST_F(AccessControlTest, AWrongKeyCostsOneHashHoweverManyThereAre) {
  std::vector<std::string> keys;
  for (int i = 0; i < 50; ++i) keys.push_back(Add(absl::StrCat("key", i).c_str()));
  int hashes = 0;
  AccessControl access(
      path_, registry_, clock_, [this] { return now_; },
      [&](const access::Salt& salt, std::string_view key) {
        ++hashes;
        return access::HashApiKey(salt, key);
      });
  ASSERT_TRUE(access.Load().ok());
  EXPECT_EQ(NameOf(access, *access::NewApiKey()), "UNAUTHENTICATED");
  EXPECT_EQ(hashes, 1);
  for (const size_t i : {0, 25, 49}) EXPECT_EQ(NameOf(access, keys[i]), absl::StrCat("key", i));
  EXPECT_EQ(hashes, 4);
}

// As in a file that was put together of others.
TEST_F(AccessControlTest, EverySaltOfTheFileIsTried) {
  const std::string alice = Add("alice");
  const std::string bob = *access::NewApiKey();
  std::ofstream(path_, std::ios::app) << "[[key]]\nname = \"bob\"\nhash = \""
                                      << access::ToText(access::HashApiKey(*access::NewSalt(), bob)) << "\"\n";
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  EXPECT_EQ(NameOf(access, alice), "alice");
  EXPECT_EQ(NameOf(access, bob), "bob");
}

// Or the key would stand in the log.
TEST_F(AccessControlTest, NoErrorQuotesAKey) {
  Add("alice");
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  const std::string key = *access::NewApiKey();
  const absl::Status status = access.Admit({.authorization = {}, .api_key = key}, Endpoint::kGenerate).status();
  EXPECT_THAT(status.ToString(), Not(HasSubstr(key)));
}

TEST_F(AccessControlTest, TheUnixSocketIsTheOperators) {
  const std::string alice = Add(access::KeyEntry{.name = "alice", .endpoints = {true, false, false, false}});
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  const auto tenant = access.Admit({.authorization = {}, .api_key = {}, .local = true}, Endpoint::kAdmin);
  ASSERT_TRUE(tenant.ok()) << tenant.status();
  EXPECT_EQ((*tenant)->name(), "operator");
  // A key that is sent counts there, too.
  EXPECT_TRUE(absl::IsPermissionDenied(
      access.Admit({.authorization = {}, .api_key = alice, .local = true}, Endpoint::kScore).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(
      access.Admit({.authorization = {}, .api_key = "wrong", .local = true}, Endpoint::kScore).status()));
}

TEST_F(AccessControlTest, EndpointsAreThoseOfTheKey) {
  const std::string key = Add(access::KeyEntry{.name = "alice", .endpoints = {false, true, false, false}});
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  const Credentials credentials{.authorization = {}, .api_key = key};
  EXPECT_TRUE(access.Admit(credentials, Endpoint::kScore).ok());
  const absl::Status status = access.Admit(credentials, Endpoint::kGenerate).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'alice' may not call 'generate'"));
  EXPECT_EQ(Refused("endpoint"), 1);
  EXPECT_TRUE(access.Identify(credentials).ok());
}

TEST_F(AccessControlTest, KeysExpire) {
  const std::string key = Add(access::KeyEntry{.name = "alice", .expires = now_ + absl::Seconds(10)});
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  EXPECT_EQ(NameOf(access, key), "alice");
  now_ += absl::Seconds(10);
  EXPECT_EQ(NameOf(access, key), "UNAUTHENTICATED");
  EXPECT_EQ(Refused("expired"), 1);
}

TEST_F(AccessControlTest, RequestsAreCountedOnceTheyMayCall) {
  const std::string key =
      Add({.name = "alice", .limits = {.requests_per_minute = 1}, .endpoints = {true, false, false, false}});
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  const Credentials credentials{.authorization = {}, .api_key = key};
  EXPECT_TRUE(absl::IsPermissionDenied(access.Admit(credentials, Endpoint::kScore).status()));
  EXPECT_TRUE(access.Identify(credentials).ok());
  EXPECT_TRUE(access.Admit(credentials, Endpoint::kGenerate).ok());
  EXPECT_EQ(RetryAfterSeconds(access.Admit(credentials, Endpoint::kGenerate).status()), 60);
}

TEST_F(AccessControlTest, AChangedFileIsReadAgain) {
  const std::string alice = Add("alice");
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  const std::shared_ptr<Tenant> before = *access.Identify({.authorization = {}, .api_key = alice});
  const std::string bob = Add("bob");
  EXPECT_EQ(NameOf(access, bob), "UNAUTHENTICATED");
  access.Reload(/*always=*/false);
  EXPECT_EQ(NameOf(access, bob), "bob");
  // Her limits are still used up.
  EXPECT_EQ(*access.Identify({.authorization = {}, .api_key = alice}), before);

  std::filesystem::remove(path_);
  const std::string carol = Add("carol");
  access.Reload(false);
  EXPECT_EQ(NameOf(access, carol), "carol");
  EXPECT_EQ(NameOf(access, alice), "UNAUTHENTICATED");
}

TEST_F(AccessControlTest, ABrokenFileKeepsTheKeys) {
  const std::string alice = Add("alice");
  AccessControl access = Make();
  ASSERT_TRUE(access.Load().ok());
  std::ofstream(path_, std::ios::app) << "[[key]\n";
  for (int i = 0; i < 3; ++i) access.Reload(false);
  EXPECT_EQ(FailedReloads(), 1);  // once for each change
  access.Reload(/*always=*/true);
  EXPECT_EQ(FailedReloads(), 2);
  EXPECT_EQ(NameOf(access, alice), "alice");
  std::filesystem::remove(path_);
  access.Reload(false);
  EXPECT_EQ(FailedReloads(), 3);
  EXPECT_EQ(NameOf(access, alice), "alice");
  const std::string bob = Add("bob");
  access.Reload(false);
  EXPECT_EQ(NameOf(access, bob), "bob");
}

TEST_F(AccessControlTest, AFileThatOthersReadIsRefusedAtTheStart) {
  Add("alice");
  chmod(path_.c_str(), 0644);
  AccessControl access = Make();
  const absl::Status status = access.Load();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--keys-file " + path_));
}

}  // namespace
}  // namespace moestro::router
