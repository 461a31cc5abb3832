#include "loadtest/workloads/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "loadtest/workloads/poisson.h"

namespace moestro::loadtest {
namespace {

std::vector<int64_t> Drawn(const std::string& text) {
  const auto lengths = Lengths::Parse("--prompt-tokens", text);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  Engine engine(1);
  std::vector<int64_t> values;
  for (int i = 0; i < 20000; ++i) values.push_back(lengths->Draw(engine));
  std::ranges::sort(values);
  return values;
}

TEST(Lengths, FollowTheirDistribution) {
  const auto fixed = Drawn("512");
  EXPECT_EQ(fixed.front(), 512);
  EXPECT_EQ(fixed.back(), 512);
  const auto uniform = Drawn("100-299");
  EXPECT_EQ(uniform.front(), 100);
  EXPECT_EQ(uniform.back(), 299);
  EXPECT_NEAR(static_cast<double>(uniform[10000]), 200, 5);
  const auto lognormal = Drawn("lognormal:500,0.8");
  EXPECT_NEAR(static_cast<double>(lognormal[10000]), 500, 15);
  EXPECT_NEAR(static_cast<double>(lognormal[16827]), 500 * 2.2255, 60);  // one sigma above: 84.13 %
}

TEST(Lengths, ErrorsNameTheFlagAndTheForms) {
  for (const char* bad :
       {"", "0", "-5", "9-3", "a", "1-2-3", "lognormal:", "lognormal:5", "lognormal:0,1", "5000000"}) {
    const auto lengths = Lengths::Parse("--prompt-tokens", bad);
    EXPECT_EQ(lengths.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(lengths.status().message()), testing::HasSubstr("--prompt-tokens")) << bad;
  }
}

TEST(PromptMaker, SeedsDecideAndPrefixesAreShared) {
  PromptMaker a(100, 1), b(100, 1), c(100, 2);
  const auto first = a.Random(50);
  EXPECT_EQ(first, b.Random(50));
  EXPECT_NE(first, c.Random(50));
  EXPECT_NE(first, a.Random(50));
  EXPECT_TRUE(std::ranges::all_of(first, [](int32_t id) { return id >= 0 && id < 100; }));
  const auto x = a.WithPrefix("p", 20, 40), y = a.WithPrefix("p", 30, 40);
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + 20, y.begin()));
  EXPECT_NE(x, y);
  EXPECT_NE(a.Prefix("p", 20), a.Prefix("q", 20));
}

TEST(Traffic, FitsTheContextAndRepeatsWithItsSeed) {
  TrafficOptions options{.prompt = *Lengths::Parse("", "1-100"),
                         .output = *Lengths::Parse("", "1-100"),
                         .vocab_size = 50,
                         .max_context_tokens = 60,
                         .seed = 3};
  Traffic one(options), two(options);
  for (int i = 0; i < 500; ++i) {
    const Request request = one.Next("g");
    EXPECT_LE(request.token_ids.size() + request.max_tokens, 60U);
    EXPECT_GE(request.max_tokens, 1U);
    EXPECT_EQ(request.token_ids, two.Next("g").token_ids);
  }
  options.texts = {"a", "b"};
  Traffic texts(options);
  EXPECT_EQ(texts.Next("g").text, "a");
  EXPECT_EQ(texts.Next("g").text, "b");
  EXPECT_EQ(texts.Next("g").text, "a");
}

TEST(Poisson, GapsAreExponentialWithTheRate) {
  PoissonWorkload workload(10, 1000, {.vocab_size = 10, .max_context_tokens = 10, .seed = 5});
  std::vector<double> gaps;
  double last = 0;
  while (const auto next = workload.NextArrival(0)) {
    EXPECT_LT(*next, 1000);
    if (*next > last) gaps.push_back(*next - last);
    last = *next;
    (void)workload.Take(*next);
  }
  EXPECT_NEAR(static_cast<double>(gaps.size()), 10000, 300);
  std::ranges::sort(gaps);
  EXPECT_NEAR(gaps[gaps.size() / 2], 0.0693, 0.003);  // median: ln 2 / rate
}

}  // namespace
}  // namespace moestro::loadtest
