// The kernels of a MoE layer in sequence, as in prefill, without the host knowing the choice: choose, sort, gate and up
// with SiLU, down, combine. Each step is compared with the truth for the previous step's result, so that the tolerances
// are those of one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/routing.h"
#include "common/tensor/pack.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

constexpr int64_t kTokens = 45, kHidden = 132, kWidth = 72, kExperts = 6, kChosen = 2, kRouted = kTokens * kChosen;
constexpr int64_t kHiddenStride = 136;  // multiples of 8

// One projection of all experts: BF16 [rows, cols] each.
struct Projection {
  Projection(int64_t rows_, int64_t cols_, uint32_t seed) : rows(rows_), cols(cols_) {
    for (int64_t e = 0; e < kExperts; ++e) {
      values.push_back(RandomBf16(rows * cols, seed + static_cast<uint32_t>(e), 0.1f));
      std::vector<uint8_t> bytes(static_cast<size_t>(PackedBytes(DType::kBF16, rows, cols)));
      for (int64_t row = 0; row < rows; row += kRowGroup) {
        PackRows(DType::kBF16, reinterpret_cast<const uint8_t*>(values.back().data() + row * cols), cols * 2,
                 std::min(kRowGroup, rows - row), cols, bytes.data() + row * PaddedCols(cols) * 2);
      }
      packed.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes));
      matrices.of[e] = {packed.back()->get(), nullptr};
    }
  }

  // The result of routed row r, with input `in` and expert `expert`.
  void Check(const std::vector<float>& out, int64_t r, int64_t expert, const uint16_t* in) const {
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < cols; ++i) {
        const double term = double{FromBf16(values[static_cast<size_t>(expert)][static_cast<size_t>(row * cols + i)])} *
                            FromBf16(in[i]);
        sum += term;
        magnitude += std::fabs(term);
      }
      ASSERT_NEAR(out[static_cast<size_t>(r * rows + row)], sum, Gamma(kMmaRoundings * 8 + 2) * magnitude)
          << "routed row " << r << " output " << row;
    }
  }

  int64_t rows, cols;
  std::vector<std::vector<uint16_t>> values;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> packed;
  MatrixList matrices;
};

// Both lists of tiles.
template <typename Launch>
::testing::AssertionResult ForTiles(const RoutingPlan& plan, const int32_t* row_of, const MatrixList& matrices,
                                    const Launch& launch) {
  for (const bool is_small : {true, false}) {
    const int32_t* begin = is_small ? plan.small_begin : plan.large_begin;
    const LinearGroups groups{
        .matrices = matrices,
        .row_of = row_of,
        .tiles = is_small ? plan.small : plan.large,
        .first_tile = begin,
        .end_tile = begin + kExperts,
        .max_tiles = is_small ? MaxSmallTiles(kRouted, kExperts) : MaxLargeTiles(kRouted, kExperts),
        .tile_tokens = is_small ? kSmallTile : kLargeTile};
    if (auto result = Ran(launch(groups)); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

TEST(CudaMoeLayerTest, EveryStepAgainstTheTruth) {
  // All rows choose expert 0 (a large tile), none chooses expert 4, some choose the others (small tiles).
  std::vector<float> logits = RandomFloats(kTokens * kExperts, 1);
  for (int64_t t = 0; t < kTokens; ++t) {
    logits[static_cast<size_t>(t * kExperts)] = 9;
    logits[static_cast<size_t>(t * kExperts + 4)] = -9;
  }
  const std::vector<uint16_t> x = RandomBf16(kTokens * kHiddenStride, 2);
  const std::vector<float> before = RandomFloats(kTokens * kHidden, 3);
  const Projection gate(kWidth, kHidden, 10), up(kWidth, kHidden, 20), down(kHidden, kWidth, 30);
  const DeviceArray<float> device_logits(logits), weights(kRouted), gate_out(kRouted * kWidth),
      up_out(kRouted * kWidth), down_out(kRouted * kHidden), sums(kTokens * kHidden), residual(before);
  const DeviceArray<uint16_t> device_x(x), gated(kRouted * kWidth);
  const DeviceArray<int32_t> ids(kRouted), has_nan(std::vector<int32_t>(1, 0)), begin(kExperts + 1), row_of(kRouted),
      routed_of(kRouted), small_begin(kExperts + 1), large_begin(kExperts + 1);
  const DeviceArray<TokenTile> small(MaxSmallTiles(kRouted, kExperts)), large(MaxLargeTiles(kRouted, kExperts));
  const RoutingPlan plan{begin.get(), row_of.get(),      routed_of.get(),  small.get(),
                         large.get(), small_begin.get(), large_begin.get()};

  ASSERT_TRUE(Ran(LaunchChooseExperts({.logits = device_logits.get(),
                                       .rows = kTokens,
                                       .experts = kExperts,
                                       .chosen = kChosen,
                                       .scale = 2.5f,
                                       .ids = ids.get(),
                                       .weights = weights.get(),
                                       .has_nan = has_nan.get()},
                                      DeviceStream())));
  ASSERT_TRUE(Ran(LaunchPlanExperts(ids.get(), 1, kTokens, kChosen, kExperts, plan, DeviceStream())));
  LinearShape shape{.dtype = DType::kBF16,
                    .rows = kWidth,
                    .cols = kHidden,
                    .x = device_x.get(),
                    .x_stride = kHiddenStride,
                    .y = gate_out.get(),
                    .y_stride = kWidth};
  const auto linear = [&](const LinearGroups& groups) { return LaunchGroupedLinear(shape, groups, DeviceStream()); };
  ASSERT_TRUE(ForTiles(plan, row_of.get(), gate.matrices, linear));
  shape.y = up_out.get();
  ASSERT_TRUE(ForTiles(plan, row_of.get(), up.matrices, linear));
  shape.y = gated.get();
  ASSERT_TRUE(ForTiles(plan, row_of.get(), gate.matrices, [&](const LinearGroups& groups) {
    return LaunchGroupedGateUp(shape, groups, up.matrices, DeviceStream());
  }));
  shape = {.dtype = DType::kBF16,
           .rows = kHidden,
           .cols = kWidth,
           .x = gated.get(),
           .x_stride = kWidth,
           .y = down_out.get(),
           .y_stride = kHidden};
  ASSERT_TRUE(ForTiles(plan, nullptr, down.matrices, linear));
  ASSERT_TRUE(Ran(LaunchCombine({.expert_out = down_out.get(),
                                 .ids = ids.get(),
                                 .weights = weights.get(),
                                 .routed_of = routed_of.get(),
                                 .first = 0,
                                 .end = kExperts,
                                 .rows = kTokens,
                                 .chosen = kChosen,
                                 .hidden = kHidden,
                                 .sums = sums.get()},
                                DeviceStream())));
  ASSERT_TRUE(Ran(LaunchAdd(sums.get(), kTokens * kHidden, residual.get(), DeviceStream())));

  const std::vector<int32_t> got_ids = ids.Download(), got_routed = routed_of.Download();
  const std::vector<float> got_weights = weights.Download(), got_gate = gate_out.Download(), got_up = up_out.Download(),
                           got_down = down_out.Download(), got = residual.Download();
  const std::vector<uint16_t> got_gated = gated.Download();
  EXPECT_EQ(large_begin.Download().back(), 1) << "a large tile is part of the test";
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> sum(kHidden, 0), magnitude(kHidden, 0);
    for (int64_t k = 0; k < kChosen; ++k) {
      const auto choice = static_cast<size_t>(t * kChosen + k);
      const int64_t r = got_routed[choice], expert = got_ids[choice];
      ASSERT_NO_FATAL_FAILURE(gate.Check(got_gate, r, expert, &x[static_cast<size_t>(t * kHiddenStride)]));
      ASSERT_NO_FATAL_FAILURE(up.Check(got_up, r, expert, &x[static_cast<size_t>(t * kHiddenStride)]));
      for (int64_t i = 0; i < kWidth; ++i) {
        const auto at = static_cast<size_t>(r * kWidth + i);
        const double truth = got_gate[at] / (1 + std::exp(-double{got_gate[at]})) * got_up[at];
        ASSERT_NEAR(FromBf16(got_gated[at]), truth, (kUnitBf16 + Gamma(7)) * (1 + kUnitBf16) * std::fabs(truth));
      }
      ASSERT_NO_FATAL_FAILURE(down.Check(got_down, r, expert, &got_gated[static_cast<size_t>(r * kWidth)]));
      for (int64_t i = 0; i < kHidden; ++i) {
        const double term = double{got_weights[choice]} * got_down[static_cast<size_t>(r * kHidden + i)];
        sum[static_cast<size_t>(i)] += term;
        magnitude[static_cast<size_t>(i)] += std::fabs(term);
      }
    }
    for (int64_t i = 0; i < kHidden; ++i) {
      const auto at = static_cast<size_t>(t * kHidden + i);
      ASSERT_NEAR(got[at], before[at] + sum[static_cast<size_t>(i)],
                  Gamma(kChosen + 1) * (magnitude[static_cast<size_t>(i)] + std::fabs(before[at])));
    }
  }
}

}  // namespace
}  // namespace moestro::cuda
