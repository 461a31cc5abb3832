#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/common/kernels/kernel_test.h"

namespace moestro {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Keys and values of one head in BF16, token t at t * stride: key_dim numbers of key, then value_dim of value, then a
// gap of NaN that no kernel may read.
struct Sequence {
  int64_t key_dim, value_dim, stride;
  std::vector<float> query;
  std::vector<uint16_t> kv;

  Sequence(int64_t tokens, int64_t keys, int64_t values, float query_scale)
      : key_dim(keys), value_dim(values), stride(keys + values + 3), query(RandomFloats(keys, 11, query_scale)) {
    kv = RandomBf16((tokens - 1) * stride + keys + values, 12);
    for (size_t i = 0; i < kv.size(); ++i) {
      if (static_cast<int64_t>(i) % stride >= keys + values) kv[i] = 0x7fc0;
    }
  }
  double Key(int64_t t, int64_t i) const { return FromBf16(kv[static_cast<size_t>(t * stride + i)]); }
  double Value(int64_t t, int64_t i) const { return FromBf16(kv[static_cast<size_t>(t * stride + key_dim + i)]); }
};

struct Result {
  float max_score = -kInfinity;
  float sum = 0;
  std::vector<float> out;

  bool operator==(const Result& other) const = default;
};

// Tokens [0, tokens) in blocks of block_size; the last one may be shorter.
template <typename T, typename Attend>
Result Run(const Sequence& s, const std::vector<T>& kv, int64_t tokens, int64_t block_size, Attend attend) {
  Result r;
  r.out.assign(static_cast<size_t>(s.value_dim), 0.0f);
  for (int64_t t = 0; t < tokens; t += block_size) {
    const AttentionBlock block{s.query.data(), s.key_dim, s.value_dim, std::min(block_size, tokens - t),
                               &r.max_score,   &r.sum,    r.out.data()};
    attend(block, kv.data() + t * s.stride, kv.data() + t * s.stride + s.key_dim, s.stride);
  }
  return r;
}
Result RunBf16(const CpuKernels& kernels, const Sequence& s, int64_t tokens, int64_t block_size) {
  return Run(s, s.kv, tokens, block_size, kernels.attend_bf16);
}
Result RunF32(const CpuKernels& kernels, const Sequence& s, int64_t tokens, int64_t block_size) {
  std::vector<float> kv;
  for (uint16_t bits : s.kv) kv.push_back(FromBf16(bits));
  return Run(s, kv, tokens, block_size,
             [&](const AttentionBlock& block, const float* keys, const float* values, int64_t stride) {
               kernels.attend_f32(block, keys, stride, values, stride);
             });
}

class AttentionTest : public KernelTest {
 protected:
  void CheckAgainstDouble(const Sequence& s, int64_t tokens, int64_t block_size);
};
MOE_INSTANTIATE_PER_ISA(AttentionTest);

// Derivation. Let A be the greatest sum |q k| of a token.
//   score:  key_dim products and additions: off by Gamma(key_dim + 1) A; minus the maximum: 2 A more units.
//   weight: relatively off by that difference and by the exponential (2 units of the last place = 4 roundings).
//   Each later block rescales: another difference of scores (2 A units), exponential and product.
//   out and sum: one product and one addition per token.
// With d the sum of these, numerator and denominator are off by d relatively (expm1 for great d), hence
//   |out - truth| <= 2 expm1(d) * sum p|v| / sum p, and one more rounding for the division.
void AttentionTest::CheckAgainstDouble(const Sequence& s, int64_t tokens, int64_t block_size) {
  SCOPED_TRACE(testing::Message() << "key " << s.key_dim << " value " << s.value_dim << " tokens " << tokens
                                  << " block " << block_size);
  std::vector<double> weights;
  double greatest = -std::numeric_limits<double>::infinity(), magnitude = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double score = 0, absolute = 0;
    for (int64_t i = 0; i < s.key_dim; ++i) {
      score += s.query[static_cast<size_t>(i)] * s.Key(t, i);
      absolute += std::fabs(s.query[static_cast<size_t>(i)] * s.Key(t, i));
    }
    weights.push_back(score);
    greatest = std::max(greatest, score);
    magnitude = std::max(magnitude, absolute);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - greatest);

  const double blocks = std::ceil(static_cast<double>(tokens) / static_cast<double>(block_size));
  const double off = Gamma(static_cast<double>(s.key_dim) + 1) * magnitude +
                     (1 + blocks) * (2 * magnitude * kUnitF32 + Gamma(5)) + Gamma(2 * static_cast<double>(tokens));
  const Result r = RunBf16(*kernels_, s, tokens, block_size);
  EXPECT_NEAR(r.max_score, greatest, Gamma(static_cast<double>(s.key_dim) + 1) * magnitude);
  for (int64_t c = 0; c < s.value_dim; ++c) {
    double out = 0, absolute = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      out += weights[static_cast<size_t>(t)] * s.Value(t, c);
      absolute += weights[static_cast<size_t>(t)] * std::fabs(s.Value(t, c));
    }
    ASSERT_NEAR(r.out[static_cast<size_t>(c)] / r.sum, out / sum, (2 * std::expm1(off) + kUnitF32) * absolute / sum)
        << "column " << c;
  }
}

TEST_P(AttentionTest, SeveralBlocksAndMaskedTailsAgainstDouble) {
  for (int64_t key_dim : {1, 4, 63, 64, 130, 192, 576}) {
    for (int64_t value_dim : {1, 15, 16, 17, 128, 130, 512}) {
      const Sequence s(77, key_dim, value_dim, 1.0f / std::sqrt(static_cast<float>(key_dim)));
      for (int64_t tokens : {1, 15, 16, 17, 32, 33, 77}) ASSERT_NO_FATAL_FAILURE(CheckAgainstDouble(s, tokens, 32));
    }
  }
}

TEST_P(AttentionTest, GreatestBlock) {
  const Sequence s(2 * kMaxAttentionBlock + 9, 64, 64, 0.2f);
  for (int64_t tokens : {kMaxAttentionBlock, 2 * kMaxAttentionBlock, 2 * kMaxAttentionBlock + 9}) {
    ASSERT_NO_FATAL_FAILURE(CheckAgainstDouble(s, tokens, kMaxAttentionBlock));
  }
}

// Scores of hundreds to thousands: e^score alone would overflow.
TEST_P(AttentionTest, LargeScores) {
  for (float scale : {100.0f, 1000.0f}) {
    const Sequence s(50, 4, 20, scale);
    for (int64_t tokens : {1, 16, 17, 50}) ASSERT_NO_FATAL_FAILURE(CheckAgainstDouble(s, tokens, 16));
  }
}

TEST_P(AttentionTest, F32KeysAndValuesGiveTheBitsOfEqualBf16Ones) {
  const Sequence s(70, 130, 130, 0.1f);
  for (int64_t tokens : {1, 17, 64, 70}) EXPECT_EQ(RunF32(*kernels_, s, tokens, 32), RunBf16(*kernels_, s, tokens, 32));
}

// The bits depend on the row and the block boundaries only: not on addresses, nor on what follows the visible tokens.
TEST_P(AttentionTest, SameBitsWhereverTheDataLies) {
  const Sequence s(70, 67, 45, 0.1f);
  const Result expected = RunBf16(*kernels_, s, 53, 32);
  for (size_t shift : {1, 3, 8, 31}) {
    Sequence moved = s;
    moved.kv.insert(moved.kv.begin(), shift, 0x7fc0);
    for (size_t i = shift + static_cast<size_t>(53 * s.stride); i < moved.kv.size(); ++i) moved.kv[i] = 0x7fc0;
    Result r;
    std::vector<float> out(static_cast<size_t>(s.value_dim) + shift, 0.0f);
    for (int64_t t = 0; t < 53; t += 32) {
      const AttentionBlock block{s.query.data(), s.key_dim, s.value_dim,       std::min<int64_t>(32, 53 - t),
                                 &r.max_score,   &r.sum,    out.data() + shift};
      const uint16_t* keys = moved.kv.data() + shift + t * s.stride;
      kernels_->attend_bf16(block, keys, keys + s.key_dim, s.stride);
    }
    r.out.assign(out.begin() + static_cast<int64_t>(shift), out.end());
    EXPECT_EQ(r, expected) << "shift " << shift;
  }
}

TEST_P(AttentionTest, NanKeyMakesNanOutput) {
  Sequence s(20, 16, 16, 0.1f);
  s.kv[static_cast<size_t>(7 * s.stride + 3)] = 0x7fc0;
  const Result r = RunBf16(*kernels_, s, 20, 32);
  EXPECT_TRUE(std::isnan(r.sum));
  for (float value : r.out) EXPECT_TRUE(std::isnan(value));
}

// One token of score x against a maximum of 0 leaves exactly e^x in `sum`: the exponential on its own. Two units of the
// last place are 4 roundings; below the normal numbers, two steps of the denormals.
TEST_P(AttentionTest, ExponentialWithinTwoUnitsOfTheLastPlace) {
  const float one = 1.0f;
  for (int i = 0; i <= 120000; ++i) {
    const float x = static_cast<float>(-i) * 1e-3f;
    float max_score = 0, sum = 0, out = 0;
    kernels_->attend_f32({&x, 1, 1, 1, &max_score, &sum, &out}, &one, 1, &one, 1);
    const double truth = std::exp(double{x});
    ASSERT_NEAR(sum, truth, 4 * kUnitF32 * truth + 2 * 0x1p-149) << "e^" << x;
    ASSERT_EQ(max_score, 0.0f);
    ASSERT_EQ(out, sum);
  }
}

}  // namespace
}  // namespace moestro
