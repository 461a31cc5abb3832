// What was counted is what the formulas say.
#include "common/roofline/traffic.h"

#include <gtest/gtest.h>

#include "tests/services/prefill/distributed/distributed_fixture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {
namespace {

using collective::Operation;
using collective::OperationCounters;

class TrafficTest : public DistributedTest {
 protected:
  const std::vector<std::vector<int64_t>> kShares = {{1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {3, 2}, {1, 2, 5}};

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
    for (const std::vector<int64_t>& shares : kShares) {
      const auto ranks = static_cast<int>(shares.size());
      ASSERT_TRUE(Distributed(count, {.ranks = ranks, .logits = 1, .shares = shares}).status.ok());
      const std::vector<int64_t> rows = RowsOf(ZigZagSplit(0, count, ProportionalParts(shares)));
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(::testing::Message() << count << " tokens, rank " << rank << " of " << ranks);
        const roofline::LinkTraffic ring = roofline::RingTraffic(spec().kv_dim(), rows, rank);
        EXPECT_EQ(Counted(rank, Operation::kRing).sent_bytes, spec().num_layers * ring.sent);
        EXPECT_EQ(Counted(rank, Operation::kRing).received_bytes, spec().num_layers * ring.received);
        const roofline::ExpertTraffic experts = roofline::SmallEpTraffic(spec(), rows, rank);
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
  std::vector<std::vector<model::ExpertChoice>> routing;
  const auto engine =
      model::Engine::Create(
          *model_.segment, TestKernels(), pool_,
          {.max_rows = kCount,
           .on_routing =
               [&](const model::LayerRouting& of) { routing.emplace_back(of.choices.begin(), of.choices.end()); }})
          .value();
  const model::TestSequence sequence(spec(), kCount);
  const kv::KvPages pages[] = {sequence.pages()};
  const std::vector<int32_t> tokens = Tokens(kCount);
  model::Forward(*engine, Rows(tokens, 1), pages, model::MlaForm::kUnabsorbed);
  ASSERT_EQ(std::ssize(routing), moe_layers());

  for (const std::vector<int64_t>& shares : kShares) {
    const auto ranks = static_cast<int>(shares.size());
    ASSERT_TRUE(
        Distributed(kCount,
                    {.ranks = ranks, .experts = roofline::ExpertParallelism::kStandard, .logits = 1, .shares = shares})
            .status.ok());
    const ProportionalParts parts(shares);
    const ZigZagSplit split(0, kCount, parts);
    for (int rank = 0; rank < ranks; ++rank) {
      roofline::LinkTraffic expected;
      for (const std::vector<model::ExpertChoice>& choices : routing) {
        std::vector<int64_t> pairs(static_cast<size_t>(ranks * ranks));
        for (int from = 0; from < ranks; ++from) {
          for (const IndexRange& stripe : split.Stripes(from)) {
            for (int64_t i = stripe.begin * spec().experts_per_token; i < stripe.end * spec().experts_per_token; ++i) {
              ++pairs[static_cast<size_t>(from * ranks + roofline::RankOfExpert(spec(), parts, choices[i].expert))];
            }
          }
        }
        const roofline::ExpertTraffic traffic = roofline::StandardEpTraffic(spec(), pairs, ranks, rank);
        expected.sent += traffic.dispatch.sent + traffic.combine.sent;
        expected.received += traffic.dispatch.received + traffic.combine.received;
      }
      EXPECT_EQ(Counted(rank, Operation::kAllToAll).sent_bytes, expected.sent) << rank << " of " << ranks;
      EXPECT_EQ(Counted(rank, Operation::kAllToAll).received_bytes, expected.received) << rank << " of " << ranks;
    }
  }
}

}  // namespace
}  // namespace moestro::prefill
