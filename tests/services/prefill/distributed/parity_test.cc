// Ranks agree with one device: keys, values, logits and greedy tokens.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/services/prefill/distributed/distributed_fixture.h"
#include "tests/support/typed_models.h"

namespace moestro::prefill {

using roofline::ExpertParallelism;

namespace {

constexpr model::MlaForm kForms[] = {model::MlaForm::kAbsorbed, model::MlaForm::kUnabsorbed};
constexpr ExpertParallelism kExperts[] = {ExpertParallelism::kSmall, ExpertParallelism::kStandard};

const char* Name(ExpertParallelism experts) { return experts == ExpertParallelism::kSmall ? "SmallEP" : "standard EP"; }

using DistributedParityTest = DistributedTest;

// Lengths that leave ranks without rows, stripes without blocks, and blocks incomplete.
TEST_F(DistributedParityTest, AnyRanksAndLengths) {
  for (const model::MlaForm form : kForms) {
    for (const int64_t count : {1, 63, 64, 65, 129, 200, 385, 520}) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        SCOPED_TRACE(::testing::Message() << count << " tokens on " << ranks << " ranks");
        ExpectAgrees(count, {.ranks = ranks, .form = form, .logits = std::min<int64_t>(count, model::kLogitRows)});
      }
    }
  }
}

TEST_F(DistributedParityTest, StandardEp) {
  for (const int64_t count : {1, 65, 300}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      SCOPED_TRACE(::testing::Message() << count << " tokens on " << ranks << " ranks");
      ExpectAgrees(count, {.ranks = ranks, .experts = ExpertParallelism::kStandard, .logits = 1});
    }
  }
}

// However rows, keys and values come from rank to rank.
TEST_F(DistributedParityTest, PeersHaveTheSameBits) {
  for (const ExpertParallelism experts : kExperts) {
    for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {5, 2, 1}}) {
      for (const int64_t cached : {0, 100}) {
        Ranks ranks{.ranks = static_cast<int>(shares.size()), .experts = experts, .cached = cached, .shares = shares};
        const Outcome expected = Distributed(300, ranks);
        const std::vector<RankReport> through_host = reports_;
        ranks.peers = true;
        const Outcome outcome = Distributed(300, ranks);
        SCOPED_TRACE(::testing::Message()
                     << ::testing::PrintToString(shares) << ", " << Name(experts) << ", " << cached << " cached");
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
        EXPECT_EQ(outcome.kv, expected.kv);
        for (size_t rank = 0; rank < shares.size(); ++rank) {
          for (int i = 0; i < collective::kOperations; ++i) {
            EXPECT_EQ(reports_[rank].exchanges[i].sent_bytes, through_host[rank].exchanges[i].sent_bytes);
          }
        }
      }
    }
  }
}

TEST_F(DistributedParityTest, AfterWhatIsCached) {
  for (const model::MlaForm form : kForms) {
    for (const int64_t cached : {1, 64, 100, 191}) {
      for (const int ranks : {1, 2, 3}) {
        SCOPED_TRACE(::testing::Message() << cached << " tokens cached, " << ranks << " ranks");
        ExpectAgrees(400, {.ranks = ranks, .form = form, .cached = cached});
      }
    }
  }
}

// Ranks with parts of any size, down to none: of the rows, of the experts, or of both.
TEST_F(DistributedParityTest, UnequalShares) {
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{3, 2}, {1, 3}, {1, 1000}, {5, 2, 1}, {1, 7, 2}}) {
    for (const ExpertParallelism experts : kExperts) {
      for (const int64_t count : {5, 129, 520}) {
        SCOPED_TRACE(::testing::Message()
                     << ::testing::PrintToString(shares) << ", " << Name(experts) << ", " << count << " tokens");
        ExpectAgrees(count, {.ranks = static_cast<int>(shares.size()),
                             .experts = experts,
                             .logits = std::min<int64_t>(count, model::kLogitRows),
                             .shares = shares});
      }
    }
    for (const model::MlaForm form : kForms) {
      for (const int64_t cached : {64, 100}) {
        SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(shares) << ", " << cached << " tokens cached");
        ExpectAgrees(400, {.ranks = static_cast<int>(shares.size()), .form = form, .cached = cached, .shares = shares});
      }
    }
  }
}

// Shares are ratios: the bits are those of ranks that have equal ones, or the same ratio.
TEST_F(DistributedParityTest, TheSameRatioHasTheSameBits) {
  for (const ExpertParallelism experts : kExperts) {
    const auto run = [&](const std::vector<int64_t>& shares) {
      return Distributed(390, {.ranks = 3, .experts = experts, .shares = shares});
    };
    for (const auto& [one, other] :
         {std::pair<std::vector<int64_t>, std::vector<int64_t>>{{}, {1000, 1000, 1000}}, {{4, 2, 1}, {12, 6, 3}}}) {
      const Outcome expected = run(one), outcome = run(other);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits)) << Name(experts);
      EXPECT_EQ(outcome.kv, expected.kv) << Name(experts);
    }
  }
}

// More than a run gives: whichever rank has a row. One rank has the bits of one device.
TEST_F(DistributedParityTest, LogitsOfEveryRow) {
  for (const model::MlaForm form : kForms) {
    for (const ExpertParallelism experts : kExperts) {
      for (const int ranks : {1, 2, 3}) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << Name(experts));
        std::vector<float> residuals(300 * spec().hidden_size);
        const Ranks setting{.ranks = ranks, .experts = experts, .form = form, .logits = 0};
        const Outcome outcome = Distributed(300, setting, model::NeverInterrupted, {.residuals = residuals});
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        const model::Logits logits = LogitsOf(residuals, 300);
        const model::Logits& expected = Resident(300, form, 300).logits;
        ExpectLogitsAgree(logits, expected);
        EXPECT_EQ(model::SameBits(logits, expected), ranks == 1);
      }
    }
  }
}

TEST_F(DistributedParityTest, AnyTile) {
  for (const model::MlaForm form : kForms) {
    for (const int64_t tile : {1, 31, 64, 200}) {
      SCOPED_TRACE(::testing::Message() << "tiles of " << tile);
      ExpectAgrees(150, {.ranks = 2, .form = form, .tile_rows = tile});
    }
  }
}

// One rank has nothing to merge with: the bits are those of one device.
TEST_F(DistributedParityTest, OneRankHasTheBitsOfOneDevice) {
  for (const model::MlaForm form : kForms) {
    for (const ExpertParallelism experts : kExperts) {
      const Outcome& expected = Resident(300, form, 4);
      const Outcome outcome = Distributed(300, {.ranks = 1, .experts = experts, .form = form});
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits)) << Name(experts);
      EXPECT_EQ(outcome.kv, expected.kv) << Name(experts);
    }
  }
}

TEST_F(DistributedParityTest, TheSameEveryTime) {
  for (const ExpertParallelism experts : kExperts) {
    const Outcome first = Distributed(300, {.ranks = 3, .experts = experts});
    for (int i = 0; i < 3; ++i) {
      const Outcome again = Distributed(300, {.ranks = 3, .experts = experts});
      EXPECT_TRUE(model::SameBits(again.logits, first.logits));
      EXPECT_EQ(again.kv, first.kv);
    }
  }
}

// Experts are chosen by the tokens, not by biases: many experts of a layer, and some by nobody. One such layer, the
// last.
class AnyExpertsTest : public DistributedTest {
 protected:
  static weights::ModelSpec Spec() {
    weights::ModelSpec spec = SmallSpec();
    spec.num_layers = 2;
    return spec;
  }
  explicit AnyExpertsTest(const weights::ModelSpec& spec = Spec()) : DistributedTest(spec, /*decisive_biases=*/false) {}
};

TEST_F(AnyExpertsTest, Agree) {
  for (const ExpertParallelism experts : kExperts) {
    for (const int ranks : {2, 3}) {
      for (const int64_t count : {5, 300}) {
        SCOPED_TRACE(::testing::Message() << Name(experts) << ", " << count << " tokens");
        const int64_t logits = std::min<int64_t>(count, model::kLogitRows);
        ExpectAgrees(count, {.ranks = ranks, .experts = experts, .logits = logits}, /*other_choices=*/1);
      }
    }
  }
}

// Of the groups with the largest shares.
class LargestOfGroupTest : public AnyExpertsTest {
 protected:
  static weights::ModelSpec LargestSpec() {
    weights::ModelSpec spec = Spec();
    spec.softmax_router = 1;
    spec.largest_of_group = 1;
    spec.norm_topk_prob = 0;
    return spec;
  }
  LargestOfGroupTest() : AnyExpertsTest(LargestSpec()) {}
};

TEST_F(LargestOfGroupTest, Agree) {
  for (const ExpertParallelism experts : kExperts) {
    ExpectAgrees(300, {.ranks = 2, .experts = experts, .logits = model::kLogitRows}, /*other_choices=*/1);
  }
}

// More ranks than experts: some stream none.
class FewExpertsTest : public DistributedTest {
 protected:
  static weights::ModelSpec Spec() {
    weights::ModelSpec spec = SmallSpec();
    spec.num_experts = 3;
    spec.num_expert_groups = 1;
    spec.experts_topk_groups = 1;
    spec.experts_per_token = 1;
    return spec;
  }
  FewExpertsTest() : DistributedTest(Spec()) {}
};

// All tokens take the same expert, on one rank.
TEST_F(FewExpertsTest, AllTokensToOneRanksExperts) {
  for (const ExpertParallelism experts : kExperts) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(::testing::Message() << Name(experts) << ", " << ranks << " ranks");
      ExpectAgrees(200, {.ranks = ranks, .experts = experts});
    }
  }
}

class BareDistributedTest : public DistributedTest {
 protected:
  BareDistributedTest() : DistributedTest(BareSpec()) {}
};

TEST_F(BareDistributedTest, NoSharedExpertsNoQueryRank) {
  for (const model::MlaForm form : kForms) ExpectAgrees(170, {.ranks = 3, .form = form});
}

// Grouped queries: ranks pass keys and values around.
class MixedDistributedTest : public DistributedTest {
 protected:
  MixedDistributedTest() : DistributedTest(SmallMixedSpec()) {}
};

TEST_F(MixedDistributedTest, DenseLayersBetweenOthers) {
  for (const ExpertParallelism experts : kExperts) ExpectAgrees(200, {.ranks = 2, .experts = experts});
}

class GatedDistributedTest : public DistributedTest {
 protected:
  GatedDistributedTest() : DistributedTest(SmallGatedSpec()) {}
};

TEST_F(GatedDistributedTest, SharedExpertBehindAGate) {
  for (const ExpertParallelism experts : kExperts) ExpectAgrees(200, {.ranks = 2, .experts = experts});
}

class GroupedDistributedTest : public DistributedTest {
 protected:
  // All experts are chosen: without biases nothing else is sure.
  static weights::ModelSpec Spec() {
    weights::ModelSpec spec = SmallGroupedSpec();
    spec.num_experts = spec.experts_per_token;
    return spec;
  }
  GroupedDistributedTest() : DistributedTest(Spec()) {}
};

TEST_F(GroupedDistributedTest, Agree) {
  for (const ExpertParallelism experts : kExperts) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t count : {3, 170, 257}) {
        SCOPED_TRACE(::testing::Message() << Name(experts) << ", " << ranks << " ranks, " << count << " tokens");
        ExpectAgrees(count, {.ranks = ranks, .experts = experts, .logits = std::min<int64_t>(count, 4)});
      }
    }
  }
}

class GroupedFormsTest : public DistributedTest, public ::testing::WithParamInterface<GroupedForm> {
 protected:
  GroupedFormsTest() : DistributedTest(GetParam().spec) {}
};

TEST_P(GroupedFormsTest, TwoRanksAgree) { ExpectAgrees(170, {.ranks = 2}); }

INSTANTIATE_TEST_SUITE_P(Attention, GroupedFormsTest, ::testing::ValuesIn(GroupedForms()),
                         [](const auto& form) { return form.param.name; });

class TypedDistributedTest : public TypedRunTest, public DistributedTest {
 protected:
  // The choice of experts is sure.
  static SyntheticOptions Options() {
    SyntheticOptions options = GetParam().options;
    options.decisive_biases = true;
    if (options.spec.num_kv_heads > 0) options.spec.num_experts = options.spec.experts_per_token;
    return options;
  }
  TypedDistributedTest() : DistributedTest(Options()) {
    const Int8Activations setting = GetParam().int8_activations;
    coded_inputs_ = setting == Int8Activations::kAll ||
                    (setting == Int8Activations::kPublished && GetParam().options.type == DType::kI8);
  }
};

TEST_P(TypedDistributedTest, OneRankHasTheBitsOfOneDeviceAndTwoAgree) {
  for (const ExpertParallelism experts : kExperts) {
    const Outcome& expected = Resident(170, model::MlaForm::kUnabsorbed, 4);
    const Outcome alone = Distributed(170, {.ranks = 1, .experts = experts});
    ASSERT_TRUE(alone.status.ok()) << alone.status;
    EXPECT_TRUE(model::SameBits(alone.logits, expected.logits)) << Name(experts);
    EXPECT_EQ(alone.kv, expected.kv) << Name(experts);
    const Outcome two = Distributed(170, {.experts = experts});
    ASSERT_TRUE(two.status.ok()) << two.status;
    ExpectLogitsAgree(two.logits, expected.logits);
    ExpectKvAgrees(two.kv, expected.kv);
    EXPECT_TRUE(model::SameBits(Distributed(170, {.experts = experts}).logits, two.logits)) << Name(experts);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedDistributedTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

TEST_F(GroupedDistributedTest, AfterCachedTokens) { ExpectAgrees(300, {.ranks = 2, .cached = 128}); }

}  // namespace
}  // namespace moestro::prefill
