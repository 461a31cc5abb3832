#include "common/model/attention/rope.h"

#include <cmath>
#include <numbers>

#include "gtest/gtest.h"

namespace moestro::model {

using weights::ModelSpec;

namespace {

ModelSpec YarnModel(double theta, double factor, double beta_fast, double beta_slow, double mscale) {
  ModelSpec spec;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.rope_theta = theta;
  spec.yarn.enabled = 1;
  spec.yarn.factor = factor;
  spec.yarn.beta_fast = beta_fast;
  spec.yarn.beta_slow = beta_slow;
  spec.yarn.mscale = mscale;
  spec.yarn.mscale_all_dim = mscale;
  spec.yarn.original_max_position_embeddings = 4096;
  return spec;
}

ModelSpec DeepSeekV3() { return YarnModel(10000, 40, 32, 1, 1); }

// Pairs up to `low` keep their frequency, pairs from `high` on are divided by the factor; in between is a linear ramp.
void ExpectRamp(const ModelSpec& spec, double low, double high, double error = 1e-12) {
  const std::vector<double> frequencies = RopeFrequencies(spec);
  ASSERT_EQ(frequencies.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(spec.rope_theta, -2.0 * i / 64);
    double blend = 0;
    if (i > low) blend = i >= high ? 1.0 : (i - low) / (high - low);
    EXPECT_NEAR(frequencies[i] / (plain * (1 - blend) + plain / spec.yarn.factor * blend), 1, error) << i;
  }
}

TEST(Rope, FrequenciesWithoutYarn) {
  ModelSpec spec = DeepSeekV3();
  spec.yarn.enabled = 0;
  const std::vector<double> frequencies = RopeFrequencies(spec);
  EXPECT_EQ(frequencies[0], 1);
  EXPECT_NEAR(frequencies[16], 0.01, 1e-15);
  EXPECT_EQ(RopeAmplitude(spec), 1);
  EXPECT_NEAR(SoftmaxScale(spec), 1 / std::sqrt(192.0), 1e-15);
}

// Frequencies are those of a head as small as its rotated part.
TEST(Rope, TheFirstNumbersOfAHead) {
  ModelSpec part;
  part.num_kv_heads = 1;
  part.qk_rope_head_dim = part.v_head_dim = 128;
  part.rotary_dims = 64;
  part.rope_theta = 10000;
  ModelSpec whole = part;
  whole.qk_rope_head_dim = whole.v_head_dim = 64;
  whole.rotary_dims = 0;
  EXPECT_EQ(RopeFrequencies(part), RopeFrequencies(whole));
  EXPECT_NEAR(SoftmaxScale(part), 1 / std::sqrt(128.0), 1e-15);  // of the whole head
}

// As published for Llama 3.1. Pairs 0 to 28 have a wavelength below 8192 / 4, pairs from 35 on one above 8192 / 1.
TEST(Rope, Llama3) {
  ModelSpec spec;
  spec.num_kv_heads = 1;
  spec.qk_rope_head_dim = spec.v_head_dim = 128;
  spec.rope_theta = 500000;
  const std::vector<double> plain = RopeFrequencies(spec);
  spec.llama3_rope = 1;
  spec.yarn = {.factor = 8, .beta_fast = 4, .beta_slow = 1, .original_max_position_embeddings = 8192};
  const std::vector<double> scaled = RopeFrequencies(spec);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    const double smooth = (8192 / wavelength - 1) / (4 - 1);
    double expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    if (i <= 28) expected = plain[i];
    if (i >= 35) expected = plain[i] / 8;
    EXPECT_NEAR(scaled[i] / expected, 1, 1e-12) << i;
  }
  EXPECT_EQ(RopeAmplitude(spec), 1);
  EXPECT_NEAR(SoftmaxScale(spec), 1 / std::sqrt(128.0), 1e-15);
}

TEST(Rope, YarnRampOfPublishedModels) {
  ExpectRamp(DeepSeekV3(), 10, 23);
  ExpectRamp(YarnModel(50000, 32, 1, 1, 1), 19, 20);  // Kimi-K2
  ExpectRamp(YarnModel(50000, 64, 32, 1, 1), 8, 20);  // Kimi-K2.5
}

// Computed by hand to six digits: an error of 1e-6 in a bound is one of 1e-6 * 31 / 9.3 in a frequency.
TEST(Rope, YarnRampBetweenPairs) {
  ModelSpec spec = YarnModel(150000, 32, 32, 1, 0);  // gpt-oss
  spec.yarn_between_pairs = 1;
  ExpectRamp(spec, 8.092779, 17.398025, 1e-5);
  spec.yarn_between_pairs = 0;
  ExpectRamp(spec, 8, 18);
}

TEST(Rope, EmptyRampBecomesAStep) {
  ModelSpec spec = DeepSeekV3();
  spec.yarn.original_max_position_embeddings = 5;  // both ends of the ramp fall on pair 0
  ExpectRamp(spec, 0, 1);
}

TEST(Rope, SoftmaxScaleOfPublishedModels) {
  EXPECT_NEAR(SoftmaxScale(DeepSeekV3()), 0.1352338, 5e-8);
  EXPECT_NEAR(SoftmaxScale(YarnModel(10000, 40, 32, 1, 0.707)), 0.1147214, 5e-8);  // DeepSeek-V2-Lite
  EXPECT_NEAR(SoftmaxScale(YarnModel(50000, 32, 1, 1, 1)), 0.1308608, 5e-8);       // Kimi-K2
  EXPECT_NEAR(SoftmaxScale(YarnModel(50000, 64, 1, 1, 1)), 0.1446796, 5e-8);       // Kimi-K2 0905
}

TEST(Rope, AmplitudeFollowsTheMscaleFields) {
  ModelSpec spec = DeepSeekV3();
  EXPECT_EQ(RopeAmplitude(spec), 1);
  spec.yarn.mscale_all_dim = 0;  // neither a ratio nor a softmax factor without it
  EXPECT_NEAR(RopeAmplitude(spec), 1.3688879, 5e-8);
  EXPECT_NEAR(SoftmaxScale(spec), 1 / std::sqrt(192.0), 1e-15);
  spec.yarn.mscale_all_dim = 0.707;
  EXPECT_NEAR(RopeAmplitude(spec), 1.3688879 / 1.2608038, 1e-7);
  spec.yarn.attention_factor = 1.25;
  EXPECT_EQ(RopeAmplitude(spec), 1.25);
}

TEST(Rope, AmplitudeMultipliesCosineAndSine) {
  ModelSpec spec = DeepSeekV3();
  spec.yarn.attention_factor = 2;
  float cosine[32], sine[32];
  Rope(spec).Angles(3, cosine, sine);
  EXPECT_FLOAT_EQ(cosine[0], 2 * static_cast<float>(std::cos(3.0)));
  EXPECT_FLOAT_EQ(sine[0], 2 * static_cast<float>(std::sin(3.0)));
}

TEST(Rope, AnglesStayExactAtLargePositions) {
  const ModelSpec spec = DeepSeekV3();
  float cosine[32], sine[32];
  Rope(spec).Angles(163839, cosine, sine);
  EXPECT_EQ(cosine[0], static_cast<float>(std::cos(163839.0)));
  const double angle = 163839 * std::pow(10000.0, -10.0 / 64);  // pair 5 is below the ramp
  EXPECT_NEAR(sine[5], std::sin(angle), 1e-7);
}

TEST(Rope, RotatesAdjacentPairs) {
  float x[4] = {1, 0, 0, 2};
  const float cosine[2] = {0, 0.6f};
  const float sine[2] = {1, 0.8f};
  RotatePairs(cosine, sine, 2, x);
  EXPECT_FLOAT_EQ(x[0], 0);
  EXPECT_FLOAT_EQ(x[1], 1);
  EXPECT_FLOAT_EQ(x[2], -1.6f);
  EXPECT_FLOAT_EQ(x[3], 1.2f);
}

TEST(Rope, RotatesHalves) {
  float x[4] = {1, 0, 0, 2};
  const float cosine[2] = {0, 0.6f};
  const float sine[2] = {1, 0.8f};
  RotateHalves(cosine, sine, 2, x);
  EXPECT_FLOAT_EQ(x[0], 0);
  EXPECT_FLOAT_EQ(x[1], -1.6f);
  EXPECT_FLOAT_EQ(x[2], 1);
  EXPECT_FLOAT_EQ(x[3], 1.2f);
}

TEST(Rope, ScoresDependOnTheDistanceOnly) {
  const Rope rope(DeepSeekV3());
  const auto score = [&](int64_t query_position, int64_t key_position) {
    float q[64], k[64], cosine[32], sine[32];
    for (int i = 0; i < 64; ++i) q[i] = std::sin(1.0f + i), k[i] = std::cos(2.0f * i);
    rope.Angles(query_position, cosine, sine);
    RotatePairs(cosine, sine, 32, q);
    rope.Angles(key_position, cosine, sine);
    RotatePairs(cosine, sine, 32, k);
    double sum = 0;
    for (int i = 0; i < 64; ++i) sum += static_cast<double>(q[i]) * k[i];
    return sum;
  };
  EXPECT_NEAR(score(107, 100), score(7, 0), 1e-5);
  EXPECT_GT(std::abs(score(8, 0) - score(7, 0)), 1e-2);
}

}  // namespace
}  // namespace moestro::model
