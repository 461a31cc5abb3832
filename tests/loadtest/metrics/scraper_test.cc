#include "loadtest/metrics/scraper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace moestro::loadtest {
namespace {

TEST(Scraper, ScrapesAtTheBeginMeanwhileAndAtTheEnd) {
  std::atomic<int> count = 0;
  auto scraper = Scraper::Begin({"h:1"}, 0.001, [&](const std::string&) -> absl::StatusOr<std::string> {
    const int value = ++count;
    if (value == 2) return absl::UnavailableError("restarting");
    return "# TYPE a gauge\na " + std::to_string(value) + "\n";
  });
  ASSERT_TRUE(scraper.ok());
  while (count < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<Scrapes> scrapes = (*scraper)->End();
  ASSERT_EQ(scrapes.size(), 1U);
  const auto& series = scrapes[0].series.at("a");
  EXPECT_EQ(series.front().value, 1);
  EXPECT_EQ(series.back().value, count);
  EXPECT_EQ(scrapes[0].failed, 1);
  EXPECT_EQ(scrapes[0].last_error, "restarting");
}

TEST(Scraper, RefusesToBeginWithoutAnAnswer) {
  const auto scraper =
      Scraper::Begin({"h:1"}, 1, [](const std::string&) { return absl::UnavailableError("http://h:1: refused"); });
  EXPECT_EQ(scraper.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(scraper.status().message()), testing::HasSubstr("--metrics"));
}

}  // namespace
}  // namespace moestro::loadtest
