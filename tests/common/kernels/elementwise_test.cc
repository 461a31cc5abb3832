#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/common/kernels/kernel_test.h"

namespace moestro {
namespace {

constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 1000, 7168};

class ElementwiseTest : public KernelTest {};
MOE_INSTANTIATE_PER_ISA(ElementwiseTest);

// One product and at most `hidden` additions round: Gamma(hidden + 1) * sum |w x|, for any number of lanes.
TEST_P(ElementwiseTest, RouterLogitsAgainstDouble) {
  for (int64_t hidden : kSizes) {
    constexpr int64_t kExperts = 5;
    const std::vector<float> w = RandomFloats(kExperts * hidden, 1), x = RandomFloats(hidden, 2);
    std::vector<float> logits(kExperts);
    kernels_->router_logits(w.data(), kExperts, hidden, x.data(), logits.data());
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < hidden; ++i) {
        const double term = double{w[static_cast<size_t>(expert * hidden + i)]} * x[static_cast<size_t>(i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const float logit = logits[static_cast<size_t>(expert)];
      EXPECT_NEAR(logit, sum, Gamma(static_cast<double>(hidden) + 1) * magnitude);
      float alone = 0;
      kernels_->router_logits(w.data() + expert * hidden, 1, hidden, x.data(), &alone);
      EXPECT_EQ(alone, logit) << "an expert's logit depends on the others";
    }
  }
}

// All terms of the sum of squares are positive, so its relative error is at most Gamma(n + 1), and half of that for its
// square root. Mean, eps, root, reciprocal and two products round once each.
TEST_P(ElementwiseTest, RmsNormAgainstDouble) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = RandomFloats(n, 3, 10.0f), weight = RandomFloats(n, 4);
    const float eps = 1e-6f;
    std::vector<float> out(static_cast<size_t>(n));
    std::vector<uint16_t> out_bf16(static_cast<size_t>(n)), only_bf16(static_cast<size_t>(n));
    kernels_->rms_norm(x.data(), weight.data(), n, eps, out.data(), out_bf16.data());
    double squares = 0;
    for (float value : x) squares += double{value} * value;
    const double root = std::sqrt(squares / static_cast<double>(n) + eps);
    for (size_t i = 0; i < x.size(); ++i) {
      const double truth = x[i] / root * weight[i];
      ASSERT_NEAR(out[i], truth, (Gamma(static_cast<double>(n) + 1) / 2 + Gamma(6)) * std::fabs(truth));
      ASSERT_EQ(out_bf16[i], ToBf16(out[i]));
    }
    std::vector<float> only_f32(static_cast<size_t>(n));
    kernels_->rms_norm(x.data(), weight.data(), n, eps, nullptr, only_bf16.data());
    kernels_->rms_norm(x.data(), weight.data(), n, eps, only_f32.data(), nullptr);
    EXPECT_EQ(only_bf16, out_bf16);
    EXPECT_EQ(only_f32, out);
  }
}

// The mean's error is that of a sum, relative to the mean of magnitudes; it shifts every number alike. The rest is as
// in RmsNorm, with one more rounding for the difference.
TEST_P(ElementwiseTest, LayerNormAgainstDouble) {
  for (int64_t n : kSizes) {
    std::vector<float> x = RandomFloats(n, 3, 10.0f);
    const std::vector<float> weight = RandomFloats(n, 4);
    for (float& value : x) value += 4;
    const float eps = 1e-5f;
    std::vector<float> out(static_cast<size_t>(n));
    std::vector<uint16_t> out_bf16(static_cast<size_t>(n)), only_bf16(static_cast<size_t>(n));
    kernels_->layer_norm(x.data(), weight.data(), n, eps, out.data(), out_bf16.data());
    double sum = 0, magnitudes = 0, squares = 0;
    for (float value : x) sum += value, magnitudes += std::fabs(value);
    const double mean = sum / static_cast<double>(n);
    for (float value : x) squares += (value - mean) * (value - mean);
    const double root = std::sqrt(squares / static_cast<double>(n) + eps);
    const double shift = Gamma(static_cast<double>(n) + 1) * magnitudes / static_cast<double>(n);
    const double relative = Gamma(static_cast<double>(n) + 1) / 2 + Gamma(8) + shift / root;
    for (size_t i = 0; i < x.size(); ++i) {
      const double truth = (x[i] - mean) / root * weight[i];
      ASSERT_NEAR(out[i], truth, relative * std::fabs(truth) + 2 * shift / root * std::fabs(weight[i]));
      ASSERT_EQ(out_bf16[i], ToBf16(out[i]));
    }
    std::vector<float> only_f32(static_cast<size_t>(n));
    kernels_->layer_norm(x.data(), weight.data(), n, eps, nullptr, only_bf16.data());
    kernels_->layer_norm(x.data(), weight.data(), n, eps, only_f32.data(), nullptr);
    EXPECT_EQ(only_bf16, out_bf16);
    EXPECT_EQ(only_f32, out);
  }
}

TEST_P(ElementwiseTest, RmsNormOfZerosIsZero) {
  const std::vector<float> zeros(20, 0.0f), weight(20, 1.0f);
  std::vector<float> out(20, 7.0f);
  kernels_->rms_norm(zeros.data(), weight.data(), 20, 1e-6f, out.data(), nullptr);
  EXPECT_EQ(out, zeros);
}

// Before rounding to BF16, silu(g) * up has the roundings of the exponential (4 units), the sum, the quotient and the
// product: 7. If e^-g overflows F32, the result is 0 instead of at most |g| * 2^-128 * |up|.
TEST_P(ElementwiseTest, SiluMulAgainstDouble) {
  for (int64_t n : {1, 15, 16, 17, 1000}) {
    std::vector<float> gate = RandomFloats(n, 5, 20.0f);
    const std::vector<float> up = RandomFloats(n, 6, 3.0f);
    const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 88.0f, -88.0f, -88.8f, 89.0f, -120.0f, 120.0f, 1e-30f, -1e30f};
    for (size_t i = 0; i < std::size(special) && 2 * i < gate.size(); ++i) gate[2 * i] = special[i];
    std::vector<uint16_t> out(static_cast<size_t>(n));
    kernels_->silu_mul(gate.data(), up.data(), n, out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double truth = gate[i] / (1 + std::exp(-double{gate[i]})) * up[i];
      const double relative = (kUnitBf16 + Gamma(7)) * (1 + kUnitBf16);
      const double flushed =
          (std::fabs(gate[i]) < 1000 ? std::fabs(gate[i]) * 0x1p-128 + 0x1p-149 : 0) * std::fabs(up[i]);
      EXPECT_NEAR(FromBf16(out[i]), truth, relative * std::fabs(truth) + flushed + 0x1p-134)
          << "silu(" << gate[i] << ") * " << up[i];
    }
  }
}

TEST_P(ElementwiseTest, SiluMulKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gate[] = {nan, 1.0f, 2.0f}, up[] = {1.0f, nan, 3.0f};
  uint16_t out[3];
  kernels_->silu_mul(gate, up, 3, out);
  EXPECT_TRUE(std::isnan(FromBf16(out[0])));
  EXPECT_TRUE(std::isnan(FromBf16(out[1])));
  EXPECT_FALSE(std::isnan(FromBf16(out[2])));
}

// As SiluMul, with two roundings more: of alpha * g, which shifts the exponential by at most that of its argument, and
// of u + 1.
TEST_P(ElementwiseTest, ClampedSwigluAgainstDouble) {
  constexpr float kLimit = 7.0f, kAlpha = 1.702f;
  for (int64_t n : {1, 15, 16, 17, 1000}) {
    std::vector<float> gate = RandomFloats(n, 5, 5.0f), up = RandomFloats(n, 6, 5.0f);
    const float special[] = {0.0f, -0.0f, 7.0f, 7.5f, -7.5f, 88.0f, -51.0f, -60.0f, 1e30f, 1e-30f};
    for (size_t i = 0; i < std::size(special) && 2 * i < gate.size(); ++i) gate[2 * i] = special[i];
    for (size_t i = 0; i < std::size(special) && 3 * i < up.size(); ++i) up[3 * i] = special[i];
    std::vector<uint16_t> out(static_cast<size_t>(n));
    kernels_->clamped_swiglu(gate.data(), up.data(), n, kLimit, kAlpha, out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = std::min(gate[i], kLimit), u = std::clamp(up[i], -kLimit, kLimit);
      const double truth = (u + 1) * g / (1 + std::exp(-double{kAlpha} * g));
      const double off = Gamma(9) + std::expm1(2 * std::fabs(kAlpha * g) * kUnitF32);
      const double relative = (kUnitBf16 + off) * (1 + kUnitBf16);
      const double flushed = (std::fabs(g) * 0x1p-128 + 0x1p-149) * std::fabs(u + 1);
      EXPECT_NEAR(FromBf16(out[i]), truth, relative * std::fabs(truth) + flushed + 0x1p-134)
          << gate[i] << " and " << up[i];
    }
  }
}

TEST_P(ElementwiseTest, ClampedSwigluKeepsNanAndTheEnd) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gate[] = {nan, 1.0f, 2.0f}, up[] = {1.0f, nan, 3.0f};
  uint16_t out[4] = {0, 0, 0, 5};
  kernels_->clamped_swiglu(gate, up, 3, 7.0f, 1.702f, out);
  EXPECT_TRUE(std::isnan(FromBf16(out[0])));
  EXPECT_TRUE(std::isnan(FromBf16(out[1])));
  EXPECT_FALSE(std::isnan(FromBf16(out[2])));
  EXPECT_EQ(out[3], 5);
}

TEST_P(ElementwiseTest, ToBf16IsTheScalarConversion) {
  std::vector<float> x;
  for (uint32_t bits :
       {0u, 0x80000000u, 1u, 0x00008000u, 0x00018000u, 0x007fffffu, 0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u,
        0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fc00000u, 0xffffffffu}) {
    x.push_back(std::bit_cast<float>(bits));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 100003; ++i) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  std::vector<uint16_t> out(x.size());
  kernels_->to_bf16(x.data(), static_cast<int64_t>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(out[i], ToBf16(x[i])) << std::hex << std::bit_cast<uint32_t>(x[i]);
  }
}

TEST_P(ElementwiseTest, AxpbyRoundsTwice) {
  for (int64_t n : {1, 15, 16, 17, 100}) {
    const std::vector<float> x = RandomFloats(n, 31), before = RandomFloats(n, 32);
    std::vector<float> y = before;
    kernels_->axpby(0.3f, x.data(), 0.7f, n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const float scaled = 0.7f * before[at];
      EXPECT_EQ(y[at], std::fma(0.3f, x[at], scaled)) << "element " << i << " of " << n;
    }
  }
}

TEST_P(ElementwiseTest, AxpyRoundsOnce) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = RandomFloats(n, 8);
    std::vector<float> y = RandomFloats(n, 9), expected = y;
    for (size_t i = 0; i < x.size(); ++i) expected[i] = std::fma(0.3f, x[i], y[i]);
    kernels_->axpy(0.3f, x.data(), n, y.data());
    EXPECT_EQ(y, expected);
  }
}

TEST_P(ElementwiseTest, NothingIsWrittenPastTheEnd) {
  const std::vector<float> ones(32, 1.0f);
  for (int64_t n = 0; n < 32; ++n) {
    std::vector<float> y(33, 5.0f);
    std::vector<uint16_t> z(33, 5);
    kernels_->axpy(1.0f, ones.data(), n, y.data());
    kernels_->to_bf16(ones.data(), n, z.data());
    EXPECT_EQ(y[static_cast<size_t>(n)], 5.0f);
    EXPECT_EQ(z[static_cast<size_t>(n)], 5);
    kernels_->silu_mul(ones.data(), ones.data(), n, z.data());
    EXPECT_EQ(z[static_cast<size_t>(n)], 5);
  }
}

}  // namespace
}  // namespace moestro
