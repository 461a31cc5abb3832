#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/math.h"
#include "common/tensor/pack.h"
#include "tests/common/kernels/amx/model_test.h"
#include "tests/common/kernels/kernel_test.h"

namespace moestro {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint16_t kNan = 0x7fc0;

class AttentionTest : public KernelTest {};
MOE_INSTANTIATE_PER_ISA(AttentionTest);

// Strided vectors; the gap after each is NaN, which no kernel may read.
struct StridedVectors {
  int64_t tokens, dim, stride;
  std::vector<uint16_t> numbers;

  StridedVectors(int64_t t, int64_t d, int64_t gap)
      : tokens(t), dim(d), stride(d + gap), numbers(RandomBf16(t * stride, 12)) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (static_cast<int64_t>(i) % stride >= dim) numbers[i] = kNan;
    }
    numbers.resize(static_cast<size_t>((tokens - 1) * stride + dim));  // a sanitizer sees a read past the last one
  }
  uint16_t at(int64_t t, int64_t i) const {
    return t < tokens && i < dim ? numbers[static_cast<size_t>(t * stride + i)] : 0;
  }
};

constexpr uint8_t kCanary = 0xa5;

// Every element is where common/tensor/pack.h puts it, padding is zero, nothing else is written.
template <typename Element>
void ExpectPacked(const std::vector<uint8_t>& packed, int64_t rows, int64_t cols, Element element) {
  const int64_t bytes = PackedBytes(DType::kBF16, rows, cols);
  for (int64_t row = 0; row < PaddedRows(rows); ++row) {
    for (int64_t col = 0; col < PaddedCols(cols); ++col) {
      const auto offset = static_cast<size_t>(PackedOffset(DType::kBF16, cols, row, col));
      ASSERT_EQ(packed[offset] | packed[offset + 1] << 8, element(row, col)) << "row " << row << ", column " << col;
    }
  }
  for (auto i = static_cast<size_t>(bytes); i < packed.size(); ++i) ASSERT_EQ(packed[i], kCanary);
}

std::vector<uint8_t> Room(int64_t rows, int64_t cols) {
  return std::vector<uint8_t>(static_cast<size_t>(PackedBytes(DType::kBF16, rows, cols)) + 64, kCanary);
}

TEST_P(AttentionTest, PacksKeysAndValues) {
  for (int64_t dim : {1, 2, 15, 31, 32, 33, 63, 64, 65, 96, 97, 128, 130, 192, 512, 576}) {
    for (int64_t tokens : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << dim);
      const StridedVectors kv(tokens, dim, 3);
      std::vector<uint8_t> keys = Room(kAttentionBlock, dim);
      kernels_->pack_keys(kv.numbers.data(), kv.stride, tokens, dim, keys.data());
      ASSERT_NO_FATAL_FAILURE(
          ExpectPacked(keys, kAttentionBlock, dim, [&](int64_t t, int64_t i) { return kv.at(t, i); }));
      std::vector<uint8_t> values = Room(dim, kAttentionBlock);
      kernels_->pack_values(kv.numbers.data(), kv.stride, tokens, dim, 0, kAttentionBlock, values.data());
      ASSERT_NO_FATAL_FAILURE(
          ExpectPacked(values, dim, kAttentionBlock, [&](int64_t i, int64_t t) { return kv.at(t, i); }));
      // As the last of three blocks of a step.
      std::vector<uint8_t> step = Room(dim, 3 * kAttentionBlock);
      const StridedVectors whole(kAttentionBlock, dim, 1);
      kernels_->pack_values(whole.numbers.data(), whole.stride, kAttentionBlock, dim, 0, 3 * kAttentionBlock,
                            step.data());
      kernels_->pack_values(whole.numbers.data(), whole.stride, kAttentionBlock, dim, kAttentionBlock,
                            3 * kAttentionBlock, step.data());
      kernels_->pack_values(kv.numbers.data(), kv.stride, tokens, dim, 2 * kAttentionBlock, 3 * kAttentionBlock,
                            step.data());
      ASSERT_NO_FATAL_FAILURE(ExpectPacked(step, dim, 3 * kAttentionBlock, [&](int64_t i, int64_t t) {
        return t < 2 * kAttentionBlock ? whole.at(t % kAttentionBlock, i) : kv.at(t - 2 * kAttentionBlock, i);
      }));
    }
  }
}

// Derivation. A scaled score has one rounding; its difference to the maximum has one more, of at most twice the
// greatest magnitude A. The exponential has two units in the last place (4 roundings); then follows one rounding to
// BF16. Below the normal numbers: two steps of the BF16 denormals. The sum is that of the rounded weights.
TEST_P(AttentionTest, SoftmaxAgainstDouble) {
  for (float spread : {0.1f, 3.0f, 40.0f, 1000.0f}) {
    for (int64_t tokens : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 128, 129, 250, 256}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << spread);
      const int64_t columns = RoundUp(tokens, kAttentionBlock);
      std::vector<float> scores = RandomFloats(tokens, static_cast<uint32_t>(tokens), spread);
      constexpr float kScale = 0.73f;
      for (float old_max : {-kInfinity, -2 * spread, 0.0f, 5 * spread}) {
        SoftmaxState state{old_max, old_max == -kInfinity ? 0.0f : 1.5f};
        std::vector<uint16_t> weights(static_cast<size_t>(columns), kNan);
        const float rescale = kernels_->softmax_step(scores.data(), tokens, columns, kScale, &state, weights.data());

        double greatest = old_max, magnitude = old_max == -kInfinity ? 0 : std::fabs(double{old_max});
        for (float score : scores) {
          greatest = std::max(greatest, double{score} * kScale);
          magnitude = std::max(magnitude, std::fabs(double{score} * kScale));
        }
        const double off = 4 * magnitude * kUnitF32 + Gamma(4);
        EXPECT_NEAR(state.max_score, greatest, kUnitF32 * magnitude);
        double sum = 0;
        for (int64_t t = 0; t < columns; ++t) {
          const double weight = FromBf16(weights[static_cast<size_t>(t)]);
          const double truth = t < tokens ? std::exp(double{scores[static_cast<size_t>(t)]} * kScale - greatest) : 0;
          ASSERT_NEAR(weight, truth, (std::expm1(off) + kUnitBf16 * (1 + std::expm1(off))) * truth + 2 * 0x1p-133)
              << "token " << t;
          sum += weight;
        }
        const double factor = old_max == -kInfinity ? 0 : std::exp(old_max - greatest);
        EXPECT_NEAR(rescale, factor, std::expm1(off) * factor + 2 * 0x1p-149);
        const double before = old_max == -kInfinity ? 0 : 1.5;
        EXPECT_NEAR(state.sum, before * rescale + sum,
                    Gamma(static_cast<double>(tokens) + 2) * (before * rescale + sum));
      }
    }
  }
}

// Tokens beyond the visible ones are not read; addresses and further columns have no effect.
TEST_P(AttentionTest, SoftmaxReadsVisibleTokensOnly) {
  constexpr int64_t kColumns = 2 * kAttentionBlock;
  const std::vector<float> scores = RandomFloats(kColumns, 7, 2.0f);
  for (int64_t tokens : {1, 15, 16, 17, 63, 64, 65, 100}) {
    const int64_t columns = RoundUp(tokens, kAttentionBlock);
    SoftmaxState expected_state{-kInfinity, 0};
    std::vector<uint16_t> expected(kColumns);
    kernels_->softmax_step(scores.data(), tokens, columns, 0.5f, &expected_state, expected.data());
    for (size_t shift : {1, 3, 7}) {
      std::vector<float> moved(shift, std::nanf(""));
      moved.insert(moved.end(), scores.begin(), scores.begin() + tokens);
      SoftmaxState state{-kInfinity, 0};
      std::vector<uint16_t> weights(kColumns + shift, kNan);
      kernels_->softmax_step(moved.data() + shift, tokens, kColumns, 0.5f, &state, weights.data() + shift);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), weights.begin() + static_cast<int64_t>(shift)));
      EXPECT_EQ(state.max_score, expected_state.max_score);
      EXPECT_EQ(state.sum, expected_state.sum);
    }
  }
}

// As tokens before a window are hidden: the others have the bits that they have alone.
TEST_P(AttentionTest, ScoresOfMinusInfinityHaveNoWeight) {
  for (const int64_t hidden : {1, 16, 37, 63}) {
    for (const float old_max : {-kInfinity, 0.5f}) {
      std::vector<float> scores = RandomFloats(kAttentionBlock, 7, 2.0f);
      std::fill_n(scores.begin(), hidden, -kInfinity);
      const SoftmaxState before{old_max, old_max == -kInfinity ? 0.0f : 1.5f};
      SoftmaxState state = before;
      std::vector<uint16_t> weights(kAttentionBlock, kNan);
      const float rescale =
          kernels_->softmax_step(scores.data(), kAttentionBlock, kAttentionBlock, 0.5f, &state, weights.data());
      EXPECT_EQ(std::ranges::count(weights, 0), hidden);
      double greatest = old_max, sum = before.sum * rescale;
      for (const float score : scores) greatest = std::max(greatest, 0.5 * score);
      for (const uint16_t weight : weights) sum += FromBf16(weight);
      EXPECT_EQ(state.max_score, static_cast<float>(greatest));
      EXPECT_NEAR(state.sum, sum, Gamma(kAttentionBlock + 2) * sum);
    }
  }
}

TEST_P(AttentionTest, NanScoreMakesNanSum) {
  std::vector<float> scores = RandomFloats(20, 3);
  scores[7] = std::nanf("");
  SoftmaxState state{-kInfinity, 0};
  std::vector<uint16_t> weights(kAttentionBlock);
  kernels_->softmax_step(scores.data(), 20, kAttentionBlock, 1.0f, &state, weights.data());
  EXPECT_TRUE(std::isnan(state.sum));
}

// A new maximum of 0 leaves exactly e^(old maximum) as the factor: the exponential alone. Two units in the last place
// are 4 roundings; below the normal numbers, two steps of the denormals.
TEST_P(AttentionTest, ExponentialWithinTwoUnitsOfTheLastPlace) {
  const float zero = 0;
  std::vector<uint16_t> weights(kAttentionBlock);
  for (int i = 0; i <= 120000; ++i) {
    const float x = static_cast<float>(-i) * 1e-3f;
    SoftmaxState state{x, 1};
    const float factor = kernels_->softmax_step(&zero, 1, kAttentionBlock, 1.0f, &state, weights.data());
    const double truth = std::exp(double{x});
    ASSERT_NEAR(factor, truth, 4 * kUnitF32 * truth + 2 * 0x1p-149) << "e^" << x;
    ASSERT_EQ(state.max_score, 0.0f);
    ASSERT_EQ(state.sum, factor + 1);
  }
}

class AttendTokenTest : public KernelOrModelTest {
 protected:
  void SetUp() override {
    KernelOrModelTest::SetUp();
    if (kernels_ != nullptr && kernels_->attend_token == nullptr) GTEST_SKIP() << GetParam() << " has none";
  }
};
MOE_INSTANTIATE_PER_ISA(AttendTokenTest);
MOE_INSTANTIATE_ON_MODEL(AttendTokenTest);

struct TokenCase {
  int64_t kv_heads, group, key_dim, value_dim;
};

// A token's queries and their sums so far.
struct TokenInputs {
  TokenInputs(const TokenCase& c, uint32_t seed)
      : queries(RandomBf16(c.kv_heads * c.group * c.key_dim, seed)),
        sums(static_cast<size_t>(c.kv_heads * c.group * c.value_dim)),
        states(static_cast<size_t>(c.kv_heads * c.group), SoftmaxState{-kInfinity, 0}) {}

  std::vector<uint16_t> queries;
  std::vector<float> sums;
  std::vector<SoftmaxState> states;
};

constexpr float kTokenScale = 0.4f;  // so that maxima change and weights differ

// A block of random vectors, all KV heads. Keys of absent tokens are NaN, their values zeros.
struct PackedBlock {
  PackedBlock(const TokenCase& c, int64_t tokens, uint32_t seed) : shape(c), numbers(Bytes() + 64, 0) {
    auto* const aligned = numbers.data() + (-reinterpret_cast<uintptr_t>(numbers.data()) & 63);
    kv = {.next = aligned,
          .next_bytes = Bytes(),
          .packed = aligned,
          .packed_values = KeyBytes(),
          .head_bytes = HeadBytes()};
    for (int64_t head = 0; head < c.kv_heads; ++head) {
      auto* const keys = reinterpret_cast<uint16_t*>(aligned + head * HeadBytes());
      uint16_t* const values = keys + KeyBytes() / 2;
      const std::vector<uint16_t> key = RandomBf16(kAttentionBlock * c.key_dim, seed + 2 * static_cast<uint32_t>(head));
      const std::vector<uint16_t> value =
          RandomBf16(kAttentionBlock * c.value_dim, seed + 2 * static_cast<uint32_t>(head) + 1);
      for (int64_t t = 0; t < kAttentionBlock; ++t) {
        for (int64_t i = 0; i < c.key_dim; ++i) {
          keys[PackedElement(c.key_dim, t, i)] = t < tokens ? key[static_cast<size_t>(t * c.key_dim + i)] : kNan;
        }
        for (int64_t i = 0; i < c.value_dim && t < tokens; ++i) {
          values[PackedElement(kAttentionBlock, i, t)] = value[static_cast<size_t>(t * c.value_dim + i)];
        }
      }
    }
  }
  int64_t KeyBytes() const { return PackedBytes(DType::kBF16, kAttentionBlock, shape.key_dim); }
  int64_t HeadBytes() const { return KeyBytes() + PackedBytes(DType::kBF16, shape.value_dim, kAttentionBlock); }
  int64_t Bytes() const { return shape.kv_heads * HeadBytes(); }

  TokenCase shape;
  std::vector<uint8_t> numbers;
  KvBlock kv;
};

// One KV head's step with the kernels for any number of queries. Returns the number of denormal weights.
int64_t AttendInSteps(const CpuKernels& kernels, const TokenCase& c, float scale, const KvBlock& kv,
                      int64_t first_token, int64_t tokens, int64_t head, TokenInputs& token) {
  const uint8_t* const keys = kv.packed + head * kv.head_bytes;
  std::vector<float> scores(static_cast<size_t>(c.group * kAttentionBlock));
  std::vector<uint16_t> weights(static_cast<size_t>(c.group * kAttentionBlock));
  kernels.linear({DType::kBF16, tokens, c.key_dim, keys}, &token.queries[head * c.group * c.key_dim], c.key_dim,
                 c.group, scores.data(), kAttentionBlock, 0, tokens);
  float* sums = &token.sums[head * c.group * c.value_dim];
  for (int64_t i = 0; i < c.group; ++i) {
    std::fill_n(&scores[i * kAttentionBlock], first_token, -kInfinity);
    const float rescale = kernels.softmax_step(&scores[i * kAttentionBlock], tokens, kAttentionBlock, scale,
                                               &token.states[head * c.group + i], &weights[i * kAttentionBlock]);
    for (int64_t n = 0; n < c.value_dim; ++n) sums[i * c.value_dim + n] *= rescale;
  }
  kernels.linear_add({DType::kBF16, c.value_dim, kAttentionBlock, keys + kv.packed_values}, weights.data(),
                     kAttentionBlock, c.group, sums, c.value_dim, 0, c.value_dim);
  return std::ranges::count_if(weights, [](uint16_t weight) { return weight > 0 && weight < 0x80; });
}

// All KV heads' step with attend_token, and the same in steps. `denormals`: adds AttendInSteps'.
void ExpectBitsOfSteps(const CpuKernels& kernels, const TokenCase& c, float scale, const KvBlock& kv,
                       int64_t first_token, int64_t tokens, TokenInputs& token, TokenInputs& expected,
                       int64_t& denormals) {
  for (int64_t head = 0; head < c.kv_heads; ++head) {
    denormals += AttendInSteps(kernels, c, scale, kv, first_token, tokens, head, expected);
  }
  kernels.attend_token(kv, tokens,
                       {.first_token = first_token,
                        .kv_heads = c.kv_heads,
                        .group = c.group,
                        .key_dim = c.key_dim,
                        .value_dim = c.value_dim,
                        .scale = scale,
                        .queries = token.queries.data(),
                        .query_stride = c.group * c.key_dim,
                        .states = token.states.data(),
                        .sums = token.sums.data()});
  for (size_t i = 0; i < token.states.size(); ++i) {
    ASSERT_EQ(token.states[i].max_score, expected.states[i].max_score) << "query " << i;
    ASSERT_EQ(token.states[i].sum, expected.states[i].sum) << "query " << i;
  }
  ASSERT_EQ(token.sums, expected.sums);
}

// Two blocks in sequence: the second must rescale existing sums.
TEST_P(AttendTokenTest, HasTheBitsOfSteps) {
  for (const TokenCase& c :
       {TokenCase{1, 1, 32, 32}, TokenCase{3, 2, 64, 32}, TokenCase{2, 3, 96, 64}, TokenCase{3, 4, 128, 128},
        TokenCase{2, 5, 32, 192}, TokenCase{2, 6, 256, 32}, TokenCase{2, 7, 128, 160}, TokenCase{2, 8, 160, 128},
        TokenCase{3, 8, 64, 64}, TokenCase{1, 9, 64, 96}, TokenCase{1, 12, 128, 128}, TokenCase{2, 15, 96, 32},
        TokenCase{2, 16, 192, 288}}) {
    for (int64_t tokens : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << c.kv_heads << " x " << c.group << " heads, "
                                      << c.key_dim << " and " << c.value_dim);
      TokenInputs expected(c, 3), token(c, 3);
      int64_t denormals = 0;
      for (int block = 0; block < 2; ++block) {
        const PackedBlock packed(c, tokens, 100 * static_cast<uint32_t>(block));
        if (block == 1) {
          std::ranges::reverse(token.queries);
          expected.queries = token.queries;
        }
        const int64_t first_token = block == 0 ? tokens / 2 : 0;
        ASSERT_NO_FATAL_FAILURE(
            ExpectBitsOfSteps(*kernels_, c, kTokenScale, packed.kv, first_token, tokens, token, expected, denormals));
      }
    }
  }
}

// Scores so far apart that some weights are denormal numbers, which some instructions take as zeros.
TEST_P(AttendTokenTest, HasTheBitsOfStepsWithTinyWeights) {
  const TokenCase c = {2, 8, 128, 64};
  constexpr float kScale = 8;
  TokenInputs expected(c, 3), token(c, 3);
  int64_t denormals = 0;
  for (uint32_t block = 0; block < 8; ++block) {
    const PackedBlock packed(c, kAttentionBlock, 12);
    token.queries = expected.queries = RandomBf16(c.kv_heads * c.group * c.key_dim, block);
    ASSERT_NO_FATAL_FAILURE(
        ExpectBitsOfSteps(*kernels_, c, kScale, packed.kv, 0, kAttentionBlock, token, expected, denormals));
  }
  EXPECT_GT(denormals, 0);
}

}  // namespace
}  // namespace moestro
