#include "common/kernels/cuda/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

struct RoutedChoice {
  std::vector<int32_t> ids;  // ascending
  std::vector<double> weights;
  double margin = 0;  // distance to another choice of groups and experts: 0 for a tie
};

std::vector<int32_t> Best(const std::vector<double>& values, int64_t count, double& margin) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  const auto n = static_cast<size_t>(count);
  if (n < ids.size()) {
    margin = std::min(margin, values[static_cast<size_t>(ids[n - 1])] - values[static_cast<size_t>(ids[n])]);
  }
  ids.resize(n);
  return ids;
}

// The selection rules of common/model/moe/gating.h and similar ones, in double precision.
RoutedChoice Choose(const ChooseExpertsArgs& args, const float* logits, const std::vector<float>& bias) {
  const auto experts = static_cast<size_t>(args.experts);
  std::vector<double> scores(experts), biased(experts);
  double sum = 0;
  for (size_t e = 0; e < experts; ++e) sum += std::exp(double{logits[e]});
  for (size_t e = 0; e < experts; ++e) {
    const double exponential = std::exp(double{logits[e]});
    scores[e] = args.score == RouterScore::kSoftmax ? exponential / sum : exponential / (1 + exponential);
    biased[e] = scores[e] + (bias.empty() ? 0 : bias[e]);
  }
  RoutedChoice choice{.ids = {}, .weights = {}, .margin = std::numeric_limits<double>::infinity()};
  const auto size = static_cast<int64_t>(experts) / args.groups;
  std::vector<double> ranks;
  for (int64_t g = 0; g < args.groups; ++g) {
    std::vector<double> group(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    ranks.push_back(args.rank == GroupRank::kLargest || size == 1 ? group[0] : group[0] + group[1]);
  }
  const std::vector<int32_t> kept = Best(ranks, args.kept_groups, choice.margin);
  for (int64_t g = 0; g < args.groups; ++g) {
    if (std::ranges::find(kept, g) != kept.end()) continue;
    std::fill_n(biased.begin() + g * size, size, -std::numeric_limits<double>::infinity());
  }
  choice.ids = Best(biased, args.chosen, choice.margin);
  std::ranges::sort(choice.ids);
  double chosen_sum = 0;
  for (const int32_t id : choice.ids) chosen_sum += scores[static_cast<size_t>(id)];
  for (const int32_t id : choice.ids) {
    choice.weights.push_back(scores[static_cast<size_t>(id)] / (args.normalise ? chosen_sum : 1) * args.scale);
  }
  return choice;
}

class ChooseExpertsTest : public ::testing::Test {
 protected:
  // Runs and compares. A choice must be right unless it depends on less than F32 can distinguish. `exact`: equal scores
  // are equal bits, so ties must be decided by id.
  void Check(ChooseExpertsArgs args, const std::vector<float>& logits, const std::vector<float>& bias,
             bool exact = false) {
    args.rows = static_cast<int64_t>(logits.size()) / args.experts;
    const int64_t choices = args.rows * args.chosen * args.stride;
    const DeviceArray<float> device_logits(logits), device_bias(bias), weights(choices);
    const DeviceArray<int32_t> ids(choices), has_nan(std::vector<int32_t>(1, 0));
    args.logits = device_logits.get();
    args.bias = bias.empty() ? nullptr : device_bias.get();
    args.ids = ids.get();
    args.weights = weights.get();
    args.has_nan = has_nan.get();
    ASSERT_TRUE(Ran(LaunchChooseExperts(args, DeviceStream())));
    EXPECT_EQ(has_nan.Download()[0], 0);
    const std::vector<int32_t> got_ids = ids.Download();
    const std::vector<float> got_weights = weights.Download();
    // Scores have the roundings of an exponential (4), sum, quotient and, for softmax, a sum over all experts.
    const double roundings = 8 + (args.score == RouterScore::kSoftmax ? static_cast<double>(args.experts) : 0);
    int64_t compared = 0;
    for (int64_t row = 0; row < args.rows; ++row) {
      const RoutedChoice truth = Choose(args, &logits[static_cast<size_t>(row * args.experts)], bias);
      double largest = 2;  // scores are at most 1; a group rank is the sum of two
      for (const float b : bias) largest = std::max(largest, 2 + 2 * std::fabs(double{b}));
      if (!exact && truth.margin < 2 * Gamma(roundings) * largest) continue;
      ++compared;
      for (int64_t k = 0; k < args.chosen; ++k) {
        const auto at = static_cast<size_t>((row * args.chosen + k) * args.stride);
        ASSERT_EQ(got_ids[at], truth.ids[static_cast<size_t>(k)]) << "row " << row << " choice " << k;
        const double weight = truth.weights[static_cast<size_t>(k)];
        ASSERT_NEAR(got_weights[at], weight, Gamma(2 * roundings + static_cast<double>(args.chosen) + 3) * weight);
      }
    }
    EXPECT_GE(compared, args.rows * 9 / 10) << "most rows must be clear cases";
    CheckHandOver(args, got_ids, got_weights);
  }

  // The host gets the same bits, x, and a flag a row. args: of a launch that has left these ids and weights.
  static void CheckHandOver(ChooseExpertsArgs args, const std::vector<int32_t>& ids,
                            const std::vector<float>& weights) {
    const HostArray<int32_t> host_ids(std::ssize(ids));
    const HostArray<float> host_weights(std::ssize(weights));
    const HostArray<uint32_t> flags(args.rows);
    args.ids = host_ids.get();
    args.weights = host_weights.get();
    for (const int64_t width : {8, 776, 7168}) {
      const std::vector<uint16_t> x = RandomBf16(args.rows * width, 20);
      const DeviceArray<uint16_t> device_x(x);
      const HostArray<uint16_t> host_x(args.rows * width);
      args.hand_over = {device_x.get(), width, host_x.get(), flags.get(), static_cast<uint32_t>(width)};
      ASSERT_TRUE(Ran(LaunchChooseExperts(args, DeviceStream())));
      EXPECT_EQ(host_x.Values(), x);
      EXPECT_EQ(flags.Values(), std::vector<uint32_t>(static_cast<size_t>(args.rows), static_cast<uint32_t>(width)));
      for (int64_t i = 0; i < args.rows * args.chosen; ++i) {
        const auto at = static_cast<size_t>(i * args.stride);
        EXPECT_EQ(host_ids.get()[at], ids[at]);
        EXPECT_EQ(host_weights.get()[at], weights[at]);
      }
    }
  }
};

TEST_F(ChooseExpertsTest, DeepSeekV3) {
  const ChooseExpertsArgs args{.experts = 256, .chosen = 8, .groups = 8, .kept_groups = 4, .scale = 2.5f};
  Check(args, RandomFloats(9 * 256, 1, 2.0f), RandomFloats(256, 2, 0.3f));
}

TEST_F(ChooseExpertsTest, KimiK2) {
  Check({.experts = 384, .chosen = 8, .scale = 2.827f}, RandomFloats(5 * 384, 3, 2.0f), RandomFloats(384, 4, 0.3f));
}

TEST_F(ChooseExpertsTest, DeepSeekV2) {
  const ChooseExpertsArgs args{.experts = 160,
                               .chosen = 6,
                               .score = RouterScore::kSoftmax,
                               .groups = 8,
                               .kept_groups = 3,
                               .rank = GroupRank::kLargest,
                               .normalise = false,
                               .scale = 16.0f};
  Check(args, RandomFloats(5 * 160, 5, 2.0f), {});
}

TEST_F(ChooseExpertsTest, Qwen3AndMixtral) {
  Check({.experts = 128, .chosen = 8, .score = RouterScore::kSoftmax}, RandomFloats(5 * 128, 6, 2.0f), {});
  Check({.experts = 8, .chosen = 2, .score = RouterScore::kSoftmax}, RandomFloats(5 * 8, 7, 2.0f), {});
}

TEST_F(ChooseExpertsTest, OddSizes) {
  Check({.experts = 1, .chosen = 1}, {0.5f}, {});
  Check({.experts = 33, .chosen = 32}, RandomFloats(3 * 33, 8), RandomFloats(33, 9));
  Check({.experts = 512, .chosen = 32}, RandomFloats(512, 10, 3.0f), {});
  Check({.experts = 6, .chosen = 2, .groups = 6, .kept_groups = 2}, RandomFloats(18, 11), {});  // groups of one
}

TEST_F(ChooseExpertsTest, ChoicesApart) {
  Check({.experts = 33, .chosen = 5, .stride = 2}, RandomFloats(3 * 33, 12), RandomFloats(33, 13));
}

TEST_F(ChooseExpertsTest, TiesGoToTheLowerId) {
  // All equal: the first experts of the first groups win.
  Check({.experts = 64, .chosen = 4, .groups = 8, .kept_groups = 2}, std::vector<float>(64, 0.25f), {}, true);
  // Two equal best scores, far apart; the rest equal as well.
  std::vector<float> logits(96, -1.0f);
  logits[95] = logits[40] = 2.0f;
  Check({.experts = 96, .chosen = 3}, logits, std::vector<float>(96, 0.0f), true);
  // Equal groups of different experts.
  std::vector<float> groups(32, 0.0f);
  groups[1] = groups[10] = groups[19] = groups[28] = 1.0f;
  Check({.experts = 32, .chosen = 4, .groups = 4, .kept_groups = 2}, groups, {}, true);
}

// Biases may be negative: a mask of 0 must not bring back the experts of a losing group.
TEST_F(ChooseExpertsTest, NegativeBiases) {
  Check({.experts = 32, .chosen = 4, .groups = 4, .kept_groups = 1}, RandomFloats(3 * 32, 12),
        std::vector<float>(32, -5.0f));
}

TEST_F(ChooseExpertsTest, NanIsReportedAndIdsStayValid) {
  std::vector<float> logits(2 * 16, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(logits.begin(), 15, 1.0f);
  const DeviceArray<float> device_logits(logits), weights(4);
  const DeviceArray<int32_t> ids(4), has_nan(std::vector<int32_t>(1, 0));
  ASSERT_TRUE(Ran(LaunchChooseExperts({.logits = device_logits.get(),
                                       .rows = 2,
                                       .experts = 16,
                                       .chosen = 2,
                                       .ids = ids.get(),
                                       .weights = weights.get(),
                                       .has_nan = has_nan.get()},
                                      DeviceStream())));
  EXPECT_EQ(has_nan.Download()[0], 1);
  EXPECT_EQ(ids.Download(), (std::vector<int32_t>{0, 1, 0, 1}));
}

TEST_F(ChooseExpertsTest, RefusesToHandOverRowsThatAreNotAligned) {
  const DeviceArray<uint16_t> x(64);
  const HostArray<uint16_t> host(64);
  for (const HandOver& hand_over :
       {HandOver{.x = x.get(), .width = 12, .to = host.get()}, HandOver{.x = x.get() + 4, .width = 8, .to = host.get()},
        HandOver{.x = x.get(), .width = 8, .to = host.get() + 4}}) {
    EXPECT_EQ(LaunchChooseExperts({.rows = 1, .experts = 8, .chosen = 1, .hand_over = hand_over}, DeviceStream()).error,
              kInvalidArgument);
  }
}

TEST_F(ChooseExpertsTest, RefusesImpossibleShapes) {
  EXPECT_EQ(LaunchChooseExperts({.rows = 1, .experts = 513, .chosen = 1}, DeviceStream()).error, kInvalidArgument);
  EXPECT_EQ(LaunchChooseExperts({.rows = 1, .experts = 8, .chosen = 5, .groups = 2}, DeviceStream()).error,
            kInvalidArgument);
  EXPECT_EQ(LaunchChooseExperts({.rows = 1, .experts = 9, .chosen = 1, .groups = 2}, DeviceStream()).error,
            kInvalidArgument);
}

// Elements `stride` apart; the numbers in between must not be used.
template <typename T>
std::vector<T> Apart(const std::vector<T>& values, int64_t stride) {
  std::vector<T> apart(values.size() * static_cast<size_t>(stride), T{3});
  for (size_t i = 0; i < values.size(); ++i) apart[i * static_cast<size_t>(stride)] = values[i];
  return apart;
}

void CheckPlan(int64_t rows, int64_t chosen, int64_t experts, const std::vector<int32_t>& ids, int64_t stride = 1) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << experts << " experts");
  const int64_t routed = rows * chosen;
  const DeviceArray<int32_t> device_ids(Apart(ids, stride)), begin(experts + 1), row_of(routed), routed_of(routed),
      small_begin(experts + 1), large_begin(experts + 1);
  const DeviceArray<TokenTile> small(MaxSmallTiles(routed, experts)), large(MaxLargeTiles(routed, experts));
  const RoutingPlan plan{begin.get(), row_of.get(),      routed_of.get(),  small.get(),
                         large.get(), small_begin.get(), large_begin.get()};
  ASSERT_TRUE(Ran(LaunchPlanExperts(device_ids.get(), stride, rows, chosen, experts, plan, DeviceStream())));

  std::vector<int32_t> expected_begin, expected_row_of, expected_routed_of(static_cast<size_t>(routed));
  for (int32_t e = 0; e < experts; ++e) {
    expected_begin.push_back(static_cast<int32_t>(expected_row_of.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != e) continue;
      expected_routed_of[i] = static_cast<int32_t>(expected_row_of.size());
      expected_row_of.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / chosen));
    }
  }
  expected_begin.push_back(static_cast<int32_t>(routed));
  EXPECT_EQ(begin.Download(), expected_begin);
  EXPECT_EQ(row_of.Download(), expected_row_of);
  EXPECT_EQ(routed_of.Download(), expected_routed_of);

  // An expert's tiles of both lists cover its rows once, in order, and small tiles hold no rest of more than kSmallRest
  // rows.
  const std::vector<int32_t> first_small = small_begin.Download(), first_large = large_begin.Download();
  const std::vector<TokenTile> small_tiles = small.Download(), large_tiles = large.Download();
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    int32_t covered = expected_begin[e];
    const auto cover = [&](const std::vector<TokenTile>& tiles, const std::vector<int32_t>& first, int size) {
      ASSERT_LE(first[e + 1], std::ssize(tiles));
      for (auto i = static_cast<size_t>(first[e]); i < static_cast<size_t>(first[e + 1]); ++i) {
        EXPECT_EQ(tiles[i].group, static_cast<int32_t>(e));
        EXPECT_EQ(tiles[i].begin, covered);
        EXPECT_GT(tiles[i].count, 0);
        EXPECT_LE(tiles[i].count, size);
        covered += tiles[i].count;
      }
    };
    cover(large_tiles, first_large, kLargeTile);
    EXPECT_LE(expected_begin[e + 1] - covered, kSmallRest);
    cover(small_tiles, first_small, kSmallTile);
    EXPECT_EQ(covered, expected_begin[e + 1]);
  }
}

TEST(PlanExpertsTest, SortsRowsAndCutsTiles) {
  std::mt19937 random(1);
  for (const auto& [rows, chosen, experts] : {std::tuple{1, 1, 1}, {40, 3, 7}, {33, 8, 256}, {300, 2, 3}}) {
    std::vector<int32_t> ids;
    for (int row = 0; row < rows; ++row) {
      std::vector<int32_t> all(static_cast<size_t>(experts));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      std::sort(all.begin(), all.begin() + chosen);
      ids.insert(ids.end(), all.begin(), all.begin() + chosen);
    }
    CheckPlan(rows, chosen, experts, ids);
    CheckPlan(rows, chosen, experts, ids, /*stride=*/2);
  }
  for (const int64_t rows : {128, 160, 161, 200}) {  // all go to one expert, four have none
    CheckPlan(rows, 1, 5, std::vector<int32_t>(static_cast<size_t>(rows), 3));
  }
  CheckPlan(0, 8, 4, {});
}

TEST(SpreadRowsTest, ARowGoesWhereEachOfItsChoicesIs) {
  constexpr int64_t kRows = 5, kChosen = 3, kChoices = kRows * kChosen;
  std::vector<int32_t> routed_of(kChoices), ids(kChoices);
  std::iota(routed_of.begin(), routed_of.end(), 0);
  std::shuffle(routed_of.begin(), routed_of.end(), std::mt19937(7));
  std::iota(ids.begin(), ids.end(), 100);
  const DeviceArray<int32_t> device_routed(routed_of);
  for (const int64_t width : {8, 136, 4104}) {
    for (const int64_t stride : {1, 2}) {
      const std::vector<uint16_t> x = RandomBf16(kRows * width, 6);
      const DeviceArray<uint16_t> device_x(x), out(kChoices * width);
      const DeviceArray<int32_t> device_ids(Apart(ids, stride)), out_ids(kChoices);
      ASSERT_TRUE(Ran(LaunchSpreadRows({.x = device_x.get(),
                                        .width = width,
                                        .ids = device_ids.get(),
                                        .stride = stride,
                                        .routed_of = device_routed.get(),
                                        .rows = kRows,
                                        .chosen = kChosen,
                                        .out = out.get(),
                                        .out_ids = out_ids.get()},
                                       DeviceStream())));
      const std::vector<uint16_t> got = out.Download();
      const std::vector<int32_t> got_ids = out_ids.Download();
      for (int64_t c = 0; c < kChoices; ++c) {
        const auto to = static_cast<size_t>(routed_of[static_cast<size_t>(c)]);
        ASSERT_EQ(got_ids[to], ids[static_cast<size_t>(c)]);
        ASSERT_TRUE(std::equal(x.begin() + c / kChosen * width, x.begin() + (c / kChosen + 1) * width,
                               got.begin() + static_cast<int64_t>(to) * width));
      }
    }
  }
  EXPECT_TRUE(LaunchSpreadRows({.width = 8, .chosen = 1}, DeviceStream()).ok());
  EXPECT_EQ(LaunchSpreadRows({.width = 12, .rows = 1, .chosen = 1}, DeviceStream()).error, kInvalidArgument);
}

// The same bits whether all experts are added at once or in groups.
TEST(CombineTest, AddsInAscendingIdWithFusedMultiplyAdds) {
  constexpr int64_t kRows = 3, kChosen = 4, kHidden = 259, kExperts = 6;
  const std::vector<float> expert_out = RandomFloats(kRows * kChosen * kHidden, 1),
                           weights = RandomFloats(kRows * kChosen, 4);
  const std::vector<int32_t> ids = {0, 2, 3, 5, 1, 2, 3, 4, 2, 3, 4, 5};
  std::vector<int32_t> routed_of(kRows * kChosen);
  std::iota(routed_of.begin(), routed_of.end(), 0);
  std::shuffle(routed_of.begin(), routed_of.end(), std::mt19937(5));
  const DeviceArray<float> device_out(expert_out);
  const DeviceArray<int32_t> device_routed(routed_of);
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, kExperts}, {0, 1, 4, kExperts}, {0, 2, kExperts}}) {
    const int64_t stride = std::ssize(cuts) % 2 + 1;
    const DeviceArray<float> device_weights(Apart(weights, stride)), sums(kRows * kHidden);
    const DeviceArray<int32_t> device_ids(Apart(ids, stride));
    for (size_t group = 0; group + 1 < cuts.size(); ++group) {
      ASSERT_TRUE(Ran(LaunchCombine({.expert_out = device_out.get(),
                                     .ids = device_ids.get(),
                                     .weights = device_weights.get(),
                                     .stride = stride,
                                     .routed_of = device_routed.get(),
                                     .first = cuts[group],
                                     .end = cuts[group + 1],
                                     .rows = kRows,
                                     .chosen = kChosen,
                                     .hidden = kHidden,
                                     .sums = sums.get()},
                                    DeviceStream())));
    }
    const std::vector<float> got = sums.Download();
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < kHidden; ++i) {
        float sum = 0;
        for (size_t k = 0; k < kChosen; ++k) {
          const size_t choice = row * kChosen + k;
          sum = std::fma(weights[choice], expert_out[static_cast<size_t>(routed_of[choice]) * kHidden + i], sum);
        }
        ASSERT_EQ(got[row * kHidden + i], sum);
      }
    }
  }
}

// Rows of one choice each, as ranks exchange them: added to existing sums, with the other experts' rows untouched.
TEST(CombineTest, WithoutWeightsAllAreOne) {
  constexpr int64_t kRows = 4, kHidden = 300;
  const std::vector<float> expert_out = RandomFloats(kRows * kHidden, 1), before = RandomFloats(kRows * kHidden, 2);
  const DeviceArray<float> device_out(expert_out), sums(before);
  const DeviceArray<int32_t> ids({5, 2, 3, 9}), routed_of({2, 0, 1, 3});
  ASSERT_TRUE(Ran(LaunchCombine({.expert_out = device_out.get(),
                                 .ids = ids.get(),
                                 .routed_of = routed_of.get(),
                                 .first = 3,
                                 .end = 6,
                                 .rows = kRows,
                                 .chosen = 1,
                                 .hidden = kHidden,
                                 .sums = sums.get()},
                                DeviceStream())));
  const std::vector<float> got = sums.Download();
  constexpr int64_t kFrom[kRows] = {2, -1, 1, -1};  // the source of the row's output
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kHidden; ++i) {
      const auto at = static_cast<size_t>(row * kHidden + i);
      const float added = kFrom[row] < 0 ? 0.0f : expert_out[static_cast<size_t>(kFrom[row] * kHidden + i)];
      ASSERT_EQ(got[at], before[at] + added) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace moestro::cuda
