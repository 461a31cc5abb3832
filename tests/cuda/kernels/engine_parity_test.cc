// The kernels against the engine's functions on the same inputs: results that must agree exactly, or to the last bits
// of the exponential.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "common/base/math.h"
#include "common/kernels/cpu/kernels.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/routing.h"
#include "common/model/attention/rope.h"
#include "common/model/moe/expert_plan.h"
#include "common/model/moe/gating.h"
#include "common/tensor/pack.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

constexpr int64_t kRows = 24;

weights::ModelSpec DeepSeekV3() {
  weights::ModelSpec spec;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 4;
  spec.norm_topk_prob = 1;
  spec.routed_scaling_factor = 2.5;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.rope_theta = 10000;
  spec.yarn = {.factor = 40, .mscale = 1, .mscale_all_dim = 1, .original_max_position_embeddings = 4096, .enabled = 1};
  return spec;
}

TEST(CudaEngineParityTest, ChoiceAndPlanOfExperts) {
  const weights::ModelSpec spec = DeepSeekV3();
  const std::vector<float> logits = RandomFloats(kRows * 256, 1, 2.0f), bias = RandomFloats(256, 2, 0.1f);
  std::vector<model::ExpertChoice> expected(kRows * 8);
  for (size_t row = 0; row < kRows; ++row) {
    ASSERT_TRUE(model::ChooseExperts(spec, std::span(logits).subspan(row * 256, 256), bias,
                                     std::span(expected).subspan(row * 8, 8))
                    .ok());
  }
  const DeviceArray<float> device_logits(logits), device_bias(bias), weights(kRows * 8);
  const DeviceArray<int32_t> ids(kRows * 8), has_nan(std::vector<int32_t>(1, 0)), begin(257), row_of(kRows * 8),
      routed_of(kRows * 8), small_begin(257), large_begin(257);
  const DeviceArray<TokenTile> small(MaxSmallTiles(kRows * 8, 256)), large(MaxLargeTiles(kRows * 8, 256));
  ASSERT_TRUE(Ran(LaunchChooseExperts({.logits = device_logits.get(),
                                       .bias = device_bias.get(),
                                       .rows = kRows,
                                       .experts = 256,
                                       .chosen = 8,
                                       .groups = 8,
                                       .kept_groups = 4,
                                       .scale = 2.5f,
                                       .ids = ids.get(),
                                       .weights = weights.get(),
                                       .has_nan = has_nan.get()},
                                      nullptr)));
  const std::vector<int32_t> got_ids = ids.Download();
  const std::vector<float> got_weights = weights.Download();
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(got_ids[i], expected[i].expert) << i;
    ASSERT_NEAR(got_weights[i], expected[i].weight, Gamma(32) * expected[i].weight);
  }

  const RoutingPlan plan{begin.get(), row_of.get(),      routed_of.get(),  small.get(),
                         large.get(), small_begin.get(), large_begin.get()};
  ASSERT_TRUE(Ran(LaunchPlanExperts(ids.get(), 1, kRows, 8, 256, plan, nullptr)));
  model::ExpertPlan expected_plan;
  expected_plan.Sort(expected, 8, 256);
  const std::vector<int32_t> got_rows = row_of.Download(), got_begin = begin.Download();
  for (size_t i = 0; i < got_rows.size(); ++i) ASSERT_EQ(got_rows[i], expected_plan.routed[i].row);
  for (const model::ExpertRows& rows : expected_plan.experts) {
    ASSERT_EQ(got_begin[static_cast<size_t>(rows.expert)], rows.begin);
    ASSERT_EQ(got_begin[static_cast<size_t>(rows.expert) + 1], rows.begin + rows.count);
  }
}

// W8A8: the same codes, exact sums, the same roundings after them. Rows of zeros, and rows whose outputs are NaN.
TEST(CudaEngineParityTest, Int8HasTheBitsOfTheCpu) {
  for (const auto& [rows, cols, tokens] :
       {std::array<int64_t, 3>{1, 1, 1}, {70, 130, 5}, {128, 64, 16}, {200, 1301, 9}, {129, 1000, 130}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " x " << tokens);
    std::mt19937 random(static_cast<uint32_t>(rows + cols));
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
    for (uint8_t& code : codes) code = random() % 8 == 0 ? uint8_t{0x80} : static_cast<uint8_t>(random());
    std::vector<float> scales = RandomFloats(PaddedRows(rows), 1, 0.01f);
    std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(DType::kI8, rows, cols)));
    std::vector<int32_t> compensation(static_cast<size_t>(PaddedRows(rows)));
    for (int64_t row = 0; row < rows; row += kRowGroup) {
      PackRows(DType::kI8, &codes[static_cast<size_t>(row * cols)], cols, std::min(kRowGroup, rows - row), cols,
               packed.data() + row / kRowGroup * PackedGroupBytes(DType::kI8, cols));
      FindCompensation(packed.data() + row / kRowGroup * PackedGroupBytes(DType::kI8, cols), cols, &compensation[row]);
    }
    const int64_t stride = RoundUp(cols, 8);
    std::vector<uint16_t> x = RandomBf16(tokens * stride, 2, 3.0f);
    if (tokens > 4) {
      std::fill_n(x.begin() + 3 * stride, stride, uint16_t{0x8000});  // -0
      x[static_cast<size_t>(4 * stride + cols / 2)] = 0x7f80;         // infinity
    }
    const PackedMatrix matrix{.dtype = DType::kI8,
                              .rows = rows,
                              .cols = cols,
                              .data = packed.data(),
                              .scales = scales.data(),
                              .compensation = compensation.data()};
    const int64_t row_bytes = CodedRowBytes(InputCoding::kRow, cols);
    std::vector<uint8_t> room(static_cast<size_t>(tokens * row_bytes + kCodedRowAlignment));
    uint8_t* const coded = room.data() + (kCodedRowAlignment - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64;
    const CpuKernels& kernels = *AvailableKernels().front();
    for (int64_t t = 0; t < tokens; ++t) {
      kernels.encode_inputs(InputCoding::kRow, &x[static_cast<size_t>(t * stride)], cols, coded + t * row_bytes);
    }
    std::vector<float> expected(static_cast<size_t>(tokens * rows));
    kernels.linear_coded(matrix, coded, row_bytes, tokens, expected.data(), rows, 0, rows, false);

    const DeviceArray<uint8_t> device_packed(packed);
    const DeviceArray<float> device_scales(scales), y(tokens * rows);
    const DeviceArray<uint16_t> device_x(x), device_coded(tokens * Int8Stride(cols));
    ASSERT_TRUE(Ran(LaunchEncodeInt8({.x = device_x.get(),
                                      .x_stride = stride,
                                      .cols = cols,
                                      .out = device_coded.get(),
                                      .out_stride = Int8Stride(cols),
                                      .rows = tokens},
                                     nullptr)));
    ASSERT_TRUE(Ran(LaunchLinear({.dtype = DType::kI8,
                                  .rows = rows,
                                  .cols = cols,
                                  .x = device_coded.get(),
                                  .x_stride = Int8Stride(cols),
                                  .y = y.get(),
                                  .y_stride = rows,
                                  .int8_inputs = true},
                                 {device_packed.get(), device_scales.get()}, tokens, nullptr)));
    const std::vector<float> got = y.Download();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    }
  }
}

// Same angles, same roundings: the same bits.
TEST(CudaEngineParityTest, YarnRotationOfQueries) {
  const weights::ModelSpec spec = DeepSeekV3();
  const model::Rope rope(spec);
  constexpr int64_t kHeads = 2, kHead = 192, kPosition = 100000;
  std::vector<float> q = RandomFloats(kRows * kHeads * kHead, 3), cosine(kRows * 32), sine(kRows * 32);
  for (int64_t row = 0; row < kRows; ++row) rope.Angles(kPosition + row, &cosine[row * 32], &sine[row * 32]);
  const DeviceArray<float> device_q(q), device_cosine(cosine), device_sine(sine);
  const DeviceArray<uint16_t> out(kRows * kHeads * kHead);
  const RopeAngles angles{device_cosine.get(), device_sine.get(), 64, RopePairs::kAdjacent};
  ASSERT_TRUE(Ran(LaunchRotateHeads(device_q.get(), kRows, kHeads, kHead, 128, angles, out.get(), nullptr)));
  const std::vector<uint16_t> got = out.Download();
  for (int64_t head = 0; head < kRows * kHeads; ++head) {
    const int64_t row = head / kHeads;
    model::RotatePairs(&cosine[row * 32], &sine[row * 32], 32, &q[head * kHead + 128]);
    for (int64_t i = head * kHead; i < (head + 1) * kHead; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], ToBf16(q[static_cast<size_t>(i)])) << i;
    }
  }
}

}  // namespace
}  // namespace moestro::cuda
