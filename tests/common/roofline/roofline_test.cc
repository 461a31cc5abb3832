#include "common/roofline/roofline.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/checkpoint/config.h"
#include "common/roofline/intensity.h"

namespace moestro::roofline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// MoE-Lightning, Fig. 3: the machine of its case study.
constexpr Level kDevice = {.memory_bytes = 24e9, .memory_bytes_per_second = 300e9, .flops_per_second = 242e12};
constexpr Level kHost = {.memory_bytes = 192e9, .memory_bytes_per_second = 100e9, .flops_per_second = 1.3e12};
constexpr double kLink = 16e9;

weights::ModelSpec Mixtral() { return checkpoint::PublishedModel("mixtral-8x7b"); }
WeightCount Expert(const weights::ModelSpec& spec) { return CountModel(spec, DType::kBF16).layers[0].expert; }

TEST(Roofline, ThreeRoofs) {
  EXPECT_EQ(Attainable(kHost, 2), 200e9);
  EXPECT_EQ(Attainable(kHost, 13), 1.3e12);
  EXPECT_EQ(Attainable(kHost, 1e6), 1.3e12);
  EXPECT_EQ(Attainable(kDevice, 10, kLink, 10), 160e9);
  EXPECT_EQ(Attainable(kDevice, 10, kLink, 1000), 3000e9);
  EXPECT_EQ(Attainable(kDevice, 1e6, kLink, 1e6), 242e12);
}

// Fig. 4: attention is left of P1 with both formats, so it does not go over the link.
TEST(Roofline, AttentionOfMixtralStaysOnTheHost) {
  const weights::ModelSpec spec = Mixtral();
  const auto intensity = [&](double value_bytes, AttentionCount count) {
    return DecodeAttention(spec, 1, 512, value_bytes, count).intensity();
  };
  EXPECT_NEAR(intensity(2, AttentionCount::kScoresAndSoftmax), 2.0, 0.01);
  EXPECT_NEAR(intensity(0.5, AttentionCount::kScoresAndSoftmax), 8.0, 0.04);
  EXPECT_NEAR(intensity(2, AttentionCount::kAll), 4.0, 0.04);
  EXPECT_EQ(FirstTurningPoint(kHost, kLink, kInfinity), 81.25);
  EXPECT_LT(intensity(0.5, AttentionCount::kAll), 81.25);
  EXPECT_EQ(FirstTurningPoint(kHost, kLink, 2), 12.5);
  // The batch does not matter.
  EXPECT_DOUBLE_EQ(DecodeAttention(spec, 64, 512).intensity(), intensity(2, AttentionCount::kAll));
}

// Fig. 5: experts with micro-batches of 128.
TEST(Roofline, ExpertsOfMixtralBalanceAt2400Requests) {
  const weights::ModelSpec spec = Mixtral();
  const WeightCount expert = Expert(spec);
  const double intensity = DecodeExperts(spec, expert, 128).intensity();
  EXPECT_NEAR(intensity, 31.95, 0.01);
  EXPECT_NEAR(Attainable(kDevice, intensity), 9584e9, 1e9);
  const double p2 = SecondTurningPoint(kDevice, kLink, intensity);
  EXPECT_NEAR(p2, 599, 0.5);
  EXPECT_DOUBLE_EQ(BalanceIntensity(kDevice, kLink, intensity), p2);  // the device's memory bounds it
  // Each of these requests brings as many operations for the bytes of weights that go over the link.
  const double bytes = 8 * expert.bytes;
  EXPECT_NEAR(p2 * bytes / DecodeExperts(spec, expert, 1).operations, 2396, 1);
  EXPECT_EQ(SecondTurningPoint(kDevice, kLink, 1e6), 242e12 / kLink);
}

TEST(Intensity, CountsAsWorkCount) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const Work one = DecodeAttention(spec, 3, 100);
  EXPECT_EQ(one.operations, AttentionFlops(spec, model::MlaForm::kAbsorbed, 300));
  EXPECT_EQ(one.bytes, KvBytes(spec, 300) + 2.0 * 3 * 128 * (576 + 512));
}

}  // namespace
}  // namespace moestro::roofline
