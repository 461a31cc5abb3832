#include "services/router/access/tenant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "services/router/access/retry_after.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

class TenantTest : public ::testing::Test {
 protected:
  Tenant Make(const access::TenantLimits& limits, const std::string& name = "alice", bool shared = false,
              const std::string& secret = "secret") {
    return Tenant({.name = name, .limits = limits, .shared_cache = shared}, secret, registry_, clock_);
  }

  MetricsRegistry registry_{"router"};
  testing::FakeRequestClock clock_;
};

TEST_F(TenantTest, RequestsOfAMinuteAreBounded) {
  Tenant tenant = Make({.requests_per_minute = 2});
  EXPECT_TRUE(tenant.TakeRequest().ok());
  EXPECT_TRUE(tenant.TakeRequest().ok());
  const absl::Status refused = tenant.TakeRequest();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("key 'alice'"));
  EXPECT_EQ(RetryAfterSeconds(refused), 30);
  EXPECT_EQ(tenant.metrics().refused_requests.Value(), 1);
  clock_.Advance(std::chrono::seconds(30));
  EXPECT_TRUE(tenant.TakeRequest().ok());
}

TEST_F(TenantTest, TokensThatWereNotUsedComeBack) {
  Tenant tenant = Make({.tokens_per_minute = 600, .burst_tokens = 1000});
  {
    auto hold = tenant.TakeTokens(900, 0);
    ASSERT_TRUE(hold.ok()) << hold.status();
    const absl::Status refused = tenant.TakeTokens(200, 0).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused));
    EXPECT_EQ(RetryAfterSeconds(refused), 10);
    EXPECT_EQ(tenant.metrics().refused_tokens.Value(), 1);
    hold->SetUsed(300);
  }
  EXPECT_TRUE(tenant.TakeTokens(700, 0).ok());  // comes back at once, unused
  auto all = tenant.TakeTokens(700, 0);
  ASSERT_TRUE(all.ok());
  all->SetUsed(700);
  const Tenant::TokenHold moved = *std::move(all);  // does not count twice
  EXPECT_FALSE(tenant.TakeTokens(1, 0).ok());
}

TEST_F(TenantTest, APromptThatExceedsTheBurstNeverFits) {
  Tenant tenant = Make({.tokens_per_minute = 600});
  const absl::Status refused = tenant.TakeTokens(601, 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(RetryAfterSeconds(refused), std::nullopt);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("600 tokens at once"));
  EXPECT_TRUE(tenant.TakeTokens(600, 1).ok());
}

// Waiting helps a request of many choices, as its error says.
TEST_F(TenantTest, TheChoicesOfARequestFitTogether) {
  Tenant tenant = Make({.tokens_per_minute = 3000});
  std::vector<Tenant::TokenHold> holds;
  for (int i = 0; i < 16; ++i) {
    auto hold = tenant.TakeTokens(3, 100000, /*choices=*/16);
    ASSERT_TRUE(hold.ok()) << i << ": " << hold.status();
    holds.push_back(*std::move(hold));
  }
  EXPECT_TRUE(tenant.TakeTokens(3000 - 16 * (3 + kAnswerPart / 16), 0).ok());
  holds.clear();
  for (int i = 0; i < 4; ++i) {  // together more than the burst: what they use beyond it is a debt
    auto hold = tenant.TakeTokens(1000, 1, /*choices=*/4);
    ASSERT_TRUE(hold.ok()) << i << ": " << hold.status();
    holds.push_back(*std::move(hold));
  }
  EXPECT_FALSE(tenant.TakeTokens(1, 0).ok());
}

// An answer that may fill the context does not reserve it: the key's other requests run meanwhile.
TEST_F(TenantTest, OfALongAnswerAPartCountsAtATime) {
  constexpr int64_t kContext = 131072;
  Tenant tenant = Make({.tokens_per_minute = 60, .burst_tokens = 10000});
  {
    auto hold = tenant.TakeTokens(1000, kContext);
    ASSERT_TRUE(hold.ok()) << hold.status();
    int64_t left = 9000 - kAnswerPart;
    EXPECT_TRUE(tenant.TakeTokens(left - kAnswerPart, kContext).ok());
    EXPECT_FALSE(tenant.TakeTokens(left - kAnswerPart + 1, kContext).ok());
    hold->SetUsed(1000 + kAnswerPart);
    EXPECT_TRUE(tenant.TakeTokens(left, 0).ok());
    hold->SetUsed(1001 + kAnswerPart);
    left -= kAnswerPart;
    EXPECT_TRUE(tenant.TakeTokens(left, 0).ok());
    EXPECT_FALSE(tenant.TakeTokens(left + 1, 0).ok());
  }
  EXPECT_TRUE(tenant.TakeTokens(8999 - kAnswerPart, 0).ok()) << "what was not used came back";
  EXPECT_FALSE(tenant.TakeTokens(9000 - kAnswerPart, 0).ok());
}

// No answer ends because its key has used up a minute's tokens. The key pays later.
TEST_F(TenantTest, AKeyThatOwesTokensWaitsUntilTheyArePaid) {
  Tenant tenant = Make({.tokens_per_minute = 60, .burst_tokens = 100});
  {
    auto hold = tenant.TakeTokens(10, 131072);
    ASSERT_TRUE(hold.ok()) << "a burst below the context, and below a part of an answer: " << hold.status();
    for (int64_t used = 10; used <= 5000; ++used) hold->SetUsed(used);
  }
  const absl::Status refused = tenant.TakeTokens(50, 0).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(RetryAfterSeconds(refused), 4950);
  clock_.Advance(std::chrono::seconds(4950));
  EXPECT_TRUE(tenant.TakeTokens(50, 0).ok());
}

TEST_F(TenantTest, NewSettingsKeepWhatIsUsedUp) {
  Tenant tenant = Make({.requests_per_minute = 2});
  EXPECT_TRUE(tenant.TakeRequest().ok());
  EXPECT_TRUE(tenant.TakeRequest().ok());
  tenant.Update({.name = "alice", .weight = 3, .limits = {.requests_per_minute = 60}}, "secret");
  EXPECT_EQ(tenant.weight(), 3);
  EXPECT_EQ(RetryAfterSeconds(tenant.TakeRequest()), 1);
  tenant.Update({.name = "alice"}, "secret");
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(tenant.TakeRequest().ok());
}

// Whatever scope a client chooses, it finds nothing of another tenant.
TEST_F(TenantTest, CacheScopesOfTenantsDiffer) {
  const Tenant alice = Make({}, "alice"), bob = Make({}, "bob"), ali = Make({}, "ali");
  std::set<std::string> scopes;
  for (const Tenant* tenant : {&alice, &bob, &ali}) {
    for (const char* chosen : {"", "x", "ce", "alice", "bob"}) scopes.insert(tenant->CacheScope(chosen));
    EXPECT_EQ(tenant->CacheScope("x"), tenant->CacheScope("x"));
    EXPECT_LE(tenant->CacheScope("x").size(), 64u);  // decode's limit
  }
  EXPECT_EQ(scopes.size(), 15u);
  EXPECT_NE(alice.CacheScope(""), Make({}, "alice", false, "another secret").CacheScope(""));
}

TEST_F(TenantTest, SharedScopesAreThoseOfAllWhoShare) {
  const Tenant alice = Make({}, "alice", true), bob = Make({}, "bob", true), own = Make({}, "carol");
  EXPECT_EQ(alice.CacheScope("x"), bob.CacheScope("x"));
  EXPECT_NE(alice.CacheScope("x"), bob.CacheScope(""));
  EXPECT_NE(alice.CacheScope(""), own.CacheScope(""));
}

TEST_F(TenantTest, WithoutKeysNothingIsLimitedOrChanged) {
  Tenant anonymous("anonymous", registry_);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(anonymous.TakeRequest().ok());
  EXPECT_TRUE(anonymous.TakeTokens(int64_t{1} << 40, 1).ok());
  EXPECT_EQ(anonymous.CacheScope("mine"), "mine");
}

TEST(RetryAfterTest, IsRoundedUpToWholeSeconds) {
  const auto seconds = [](std::chrono::milliseconds wait) {
    return RetryAfterSeconds(WithRetryAfter(absl::ResourceExhaustedError("x"), wait));
  };
  EXPECT_EQ(seconds(std::chrono::milliseconds(0)), 1);
  EXPECT_EQ(seconds(std::chrono::milliseconds(1000)), 1);
  EXPECT_EQ(seconds(std::chrono::milliseconds(1001)), 2);
  EXPECT_EQ(RetryAfterSeconds(absl::ResourceExhaustedError("x")), std::nullopt);
}

}  // namespace
}  // namespace moestro::router
