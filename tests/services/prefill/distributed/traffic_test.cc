// What was counted is what the formulas say.
#include "services/prefill/distributed/traffic.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "tests/services/prefill/distributed/distributed_fixture.h"

namespace moestro {
namespace {

using collective::Operation;
using collective::OperationCounters;

class TrafficTest : public DistributedTest {
 protected:
  const OperationCounters& Counted(int rank, Operation operation) const {
    return reports_[static_cast<size_t>(rank)].exchanges[static_cast<size_t>(operation)];
  }
  int64_t moe_layers() const { return spec().num_layers - spec().first_dense_layers; }

  static std::vector<int64_t> RowsOf(const ZigZagSplit& split) {
    std::vector<int64_t> rows;
    for (int rank = 0; rank < split.ranks(); ++rank) rows.push_back(split.Rows(rank));
    return rows;
  }
};

TEST_F(TrafficTest, RingAndSmallEp) {
  for (const int64_t count : {1, 100, 390, 700}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      ASSERT_TRUE(Distributed(count, {.ranks = ranks, .logits = 1}).status.ok());
      const std::vector<int64_t> rows = RowsOf(ZigZagSplit(0, count, ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(testing::Message() << count << " tokens, rank " << rank << " of " << ranks);
        const LinkTraffic ring = RingTraffic(spec().kv_dim(), rows, rank);
        EXPECT_EQ(Counted(rank, Operation::kRing).sent_bytes, spec().num_layers * ring.sent);
        EXPECT_EQ(Counted(rank, Operation::kRing).received_bytes, spec().num_layers * ring.received);
        const ExpertTraffic experts = SmallEpTraffic(spec(), rows, rank);
        EXPECT_EQ(Counted(rank, Operation::kAllGather).sent_bytes, moe_layers() * experts.dispatch.sent);
        EXPECT_EQ(Counted(rank, Operation::kAllGather).received_bytes, moe_layers() * experts.dispatch.received);
        EXPECT_EQ(Counted(rank, Operation::kAllToAll).sent_bytes, moe_layers() * experts.combine.sent);
        EXPECT_EQ(Counted(rank, Operation::kAllToAll).received_bytes, moe_layers() * experts.combine.received);
      }
    }
  }
}

// The pairs of every layer, from the routing that the resident engine reports: the model's biases decide it, so that no
// rounding makes another choice.
TEST_F(TrafficTest, StandardEp) {
  constexpr int64_t kCount = 300;
  std::vector<std::vector<ExpertChoice>> routing;
  const auto engine =
      Engine::Create(
          *model_.segment, *AvailableKernels().back(), pool_,
          {.max_rows = kCount,
           .on_routing = [&](int64_t, auto choices) { routing.emplace_back(choices.begin(), choices.end()); }})
          .value();
  const TestSequence sequence(spec(), kCount);
  const KvPages pages[] = {sequence.pages()};
  const std::vector<int32_t> tokens = Tokens(kCount);
  Forward(*engine, Rows(tokens, 1), pages, MlaForm::kUnabsorbed);
  ASSERT_EQ(std::ssize(routing), moe_layers());

  for (int ranks = 2; ranks <= 4; ++ranks) {
    ASSERT_TRUE(
        Distributed(kCount, {.ranks = ranks, .experts = ExpertParallelism::kStandard, .logits = 1}).status.ok());
    const ZigZagSplit split(0, kCount, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      LinkTraffic expected;
      for (const std::vector<ExpertChoice>& choices : routing) {
        std::vector<int64_t> pairs(static_cast<size_t>(ranks * ranks));
        for (int from = 0; from < ranks; ++from) {
          for (const IndexRange& stripe : split.Stripes(from)) {
            for (int64_t i = stripe.begin * spec().experts_per_token; i < stripe.end * spec().experts_per_token; ++i) {
              ++pairs[static_cast<size_t>(from * ranks + RankOfExpert(spec(), choices[i].expert, ranks))];
            }
          }
        }
        const ExpertTraffic traffic = StandardEpTraffic(spec(), pairs, ranks, rank);
        expected.sent += traffic.dispatch.sent + traffic.combine.sent;
        expected.received += traffic.dispatch.received + traffic.combine.received;
      }
      EXPECT_EQ(Counted(rank, Operation::kAllToAll).sent_bytes, expected.sent) << rank << " of " << ranks;
      EXPECT_EQ(Counted(rank, Operation::kAllToAll).received_bytes, expected.received) << rank << " of " << ranks;
    }
  }
}

int64_t Total(const ExpertTraffic& t) {
  return t.dispatch.sent + t.dispatch.received + t.combine.sent + t.combine.received;
}

ModelSpec FlagshipExperts() {
  ModelSpec spec;
  spec.hidden_size = 7168;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  return spec;
}

TEST(Traffic, ThePapersFormulasAndBreakEven) {
  const ModelSpec spec = FlagshipExperts();
  constexpr int64_t kTokens = 20480;
  for (const int64_t ranks : {2, 4, 8}) {
    const int64_t own = kTokens / ranks;
    const std::vector<int64_t> rows(static_cast<size_t>(ranks), own);
    const ExpertTraffic small = SmallEpTraffic(spec, rows, 0);
    const ExpertTraffic standard = StandardEpTraffic(spec, EvenPairs(spec, rows), static_cast<int>(ranks), 0);
    // Rows of SmallEP over rows of standard EP, in each direction: S / A.
    const int64_t row = 2 * spec.hidden_size;
    EXPECT_EQ(small.dispatch.sent, (kTokens - own) * (row + 8 * 8));
    EXPECT_EQ(standard.dispatch.sent, own * 8 * (ranks - 1) / ranks * (row + 4) + 8 * (ranks - 1));
    EXPECT_EQ(small.combine.sent * 8, standard.combine.sent * ranks);
  }
  // At S = A both move the same rows; SmallEP's say more about their experts.
  EXPECT_EQ(BreakEvenRanks(spec), 7);
  const std::vector<int64_t> eight(8, 2560);
  const double ratio = static_cast<double>(Total(SmallEpTraffic(spec, eight, 0))) /
                       static_cast<double>(Total(StandardEpTraffic(spec, EvenPairs(spec, eight), 8, 0)));
  EXPECT_NEAR(ratio, 1, 0.002);

  const std::vector<int64_t> two(2, kTokens / 2);
  const double cut = 1 - static_cast<double>(Total(SmallEpTraffic(spec, two, 0))) /
                             static_cast<double>(Total(StandardEpTraffic(spec, EvenPairs(spec, two), 2, 0)));
  std::printf("SmallEP moves %.1f %% less than standard EP on 2 ranks; the paper measured about 50 %%\n", 100 * cut);
  EXPECT_NEAR(cut, 1 - 2.0 / 8, 0.002);  // 1 - S / A
}

TEST(Traffic, RingPassesWhatOthersNeed) {
  const int64_t rows[] = {10, 20, 30};
  EXPECT_EQ(RingTraffic(4, rows, 0), (LinkTraffic{(60 - 20) * 8, (60 - 10) * 8}));
  EXPECT_EQ(RingTraffic(4, std::span(rows, 1), 0), LinkTraffic{});
}

}  // namespace
}  // namespace moestro
