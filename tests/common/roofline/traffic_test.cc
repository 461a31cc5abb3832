#include "common/roofline/traffic.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "common/checkpoint/config.h"

namespace moestro::roofline {
namespace {

int64_t Total(const ExpertTraffic& t) {
  return t.dispatch.sent + t.dispatch.received + t.combine.sent + t.combine.received;
}

TEST(Traffic, ThePapersFormulasAndBreakEven) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  constexpr int64_t kTokens = 20480;
  for (const int64_t ranks : {2, 4, 8}) {
    const int64_t own = kTokens / ranks;
    const std::vector<int64_t> rows(static_cast<size_t>(ranks), own);
    const ExpertTraffic small = SmallEpTraffic(spec, rows, 0);
    const ExpertTraffic standard =
        StandardEpTraffic(spec, EvenPairs(spec, ProportionalParts::Even(ranks), rows), static_cast<int>(ranks), 0);
    // Rows of SmallEP over rows of standard EP, in each direction: S / A.
    const int64_t row = 2 * spec.hidden_size;
    EXPECT_EQ(small.dispatch.sent, (kTokens - own) * (row + 8 * 8));
    EXPECT_EQ(standard.dispatch.sent, own * 8 * (ranks - 1) / ranks * (row + 4) + 8 * (ranks - 1));
    EXPECT_EQ(small.combine.sent * 8, standard.combine.sent * ranks);
  }
  // At S = A both move the same rows; SmallEP sends more data about their experts.
  EXPECT_EQ(BreakEvenRanks(spec), 7);
  const std::vector<int64_t> eight(8, 2560);
  const double ratio =
      static_cast<double>(Total(SmallEpTraffic(spec, eight, 0))) /
      static_cast<double>(Total(StandardEpTraffic(spec, EvenPairs(spec, ProportionalParts::Even(8), eight), 8, 0)));
  EXPECT_NEAR(ratio, 1, 0.002);

  const std::vector<int64_t> two(2, kTokens / 2);
  const double cut =
      1 -
      static_cast<double>(Total(SmallEpTraffic(spec, two, 0))) /
          static_cast<double>(Total(StandardEpTraffic(spec, EvenPairs(spec, ProportionalParts::Even(2), two), 2, 0)));
  std::printf("SmallEP moves %.1f %% less than standard EP on 2 ranks; the paper measured about 50 %%\n", 100 * cut);
  EXPECT_NEAR(cut, 1 - 2.0 / 8, 0.002);  // 1 - S / A
}

TEST(Traffic, RingPassesWhatOthersNeed) {
  const int64_t rows[] = {10, 20, 30};
  EXPECT_EQ(RingTraffic(4, rows, 0), (LinkTraffic{(60 - 20) * 8, (60 - 10) * 8}));
  EXPECT_EQ(RingTraffic(4, std::span(rows, 1), 0), LinkTraffic{});
}

}  // namespace
}  // namespace moestro::roofline
