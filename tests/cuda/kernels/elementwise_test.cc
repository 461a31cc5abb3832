#include "common/kernels/cuda/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "common/base/math.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kv/kv_block.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

// The contents of a device buffer before a kernel writes it.
constexpr uint16_t kUntouchedBits = 0xffff;

// By fours, and one by one where the width or an address does not allow fours.
TEST(CudaElementwiseTest, EmbeddingRowsAreExact) {
  constexpr int64_t kVocabulary = 5;
  const std::vector<int32_t> tokens = {4, 0, 4, 2};
  const DeviceArray<int32_t> device_tokens(tokens);
  for (const auto& [hidden, offset] : {std::pair<int64_t, int64_t>(300, 0), {1500, 0}, {1500, 1}, {301, 0}, {3, 0}}) {
    const std::vector<uint16_t> table = RandomBf16(kVocabulary * hidden + offset, 1);
    std::vector<float> wide(table.size());
    std::ranges::transform(table, wide.begin(), FromBf16);
    const DeviceArray<uint16_t> narrow_table(table);
    const DeviceArray<float> wide_table(wide);
    const auto check = [&](const auto* device_table) {
      const DeviceArray<float> residual(4 * hidden);
      ASSERT_TRUE(
          Ran(LaunchEmbed(device_table + offset, device_tokens.get(), 4, hidden, residual.get(), DeviceStream())));
      const std::vector<float> got = residual.Download();
      for (int64_t i = 0; i < 4 * hidden; ++i) {
        const int64_t from = offset + tokens[static_cast<size_t>(i / hidden)] * hidden + i % hidden;
        ASSERT_EQ(got[static_cast<size_t>(i)], wide[static_cast<size_t>(from)]) << hidden << " numbers, " << i;
      }
    };
    check(narrow_table.get());
    check(wide_table.get());
  }
}

// The reciprocal root has half the relative error of the sum (at most n + 1 roundings in any order, and the division),
// plus those of the root and the quotient; the product adds two.
double NormTolerance(int64_t n) { return Gamma(static_cast<double>(n) + 2) / 2 + Gamma(6); }

double InverseRoot(const float* x, int64_t n, float eps) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  return 1 / std::sqrt(squares / static_cast<double>(n) + eps);
}

TEST(CudaElementwiseTest, RmsNormAgainstDouble) {
  constexpr int64_t kRows = 3;
  constexpr float kEps = 1e-6f;
  for (const int64_t n : {1, 31, 256, 257, 1000}) {
    const int64_t stride = n + 3;
    const std::vector<float> x = RandomFloats(kRows * stride, 2, 3.0f), weight = RandomFloats(n, 3);
    const DeviceArray<float> device_x(x), device_weight(weight), out(kRows * n);
    const DeviceArray<uint16_t> bf16(kRows * (n + 1));
    RmsNormArgs args{.x = device_x.get(),
                     .x_stride = stride,
                     .weight = device_weight.get(),
                     .rows = kRows,
                     .n = n,
                     .eps = kEps,
                     .out = out.get(),
                     .out_bf16 = bf16.get(),
                     .out_bf16_stride = n + 1};
    ASSERT_TRUE(Ran(LaunchRmsNorm(args, DeviceStream())));
    const std::vector<float> got = out.Download();
    const std::vector<uint16_t> got_bf16 = bf16.Download();
    for (int64_t row = 0; row < kRows; ++row) {
      const double inverse = InverseRoot(&x[static_cast<size_t>(row * stride)], n, kEps);
      for (int64_t i = 0; i < n; ++i) {
        const double truth = x[static_cast<size_t>(row * stride + i)] * inverse * weight[static_cast<size_t>(i)];
        const float value = got[static_cast<size_t>(row * n + i)];
        ASSERT_NEAR(value, truth, NormTolerance(n) * std::fabs(truth))
            << "row " << row << " number " << i << " of " << n;
        ASSERT_EQ(got_bf16[static_cast<size_t>(row * (n + 1) + i)], ToBf16(value));
      }
      ASSERT_EQ(got_bf16[static_cast<size_t>(row * (n + 1) + n)], kUntouchedBits);
    }
    args.out = nullptr;  // either output may be missing
    ASSERT_TRUE(Ran(LaunchRmsNorm(args, DeviceStream())));
  }
}

// The codes are those of the norm in BF16, also of rows that have none.
TEST(CudaElementwiseTest, NormsInCodes) {
  constexpr int64_t kRows = 4;
  for (const int64_t n : {1, 2, 3, 15, 16, 130, 1023, 1301}) {
    std::vector<float> x = RandomFloats(kRows * n, 50, 3.0f);
    std::fill_n(x.begin() + n, n, 0.0f);
    x[static_cast<size_t>(2 * n + n / 2)] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> weight = RandomFloats(n, 51);
    x[static_cast<size_t>(4 * n - 1)] = 1e25f;  // its square is infinite, the norm 0
    const DeviceArray<float> device_x(x), device_weight(weight);
    const int64_t stride = RoundUp(n, 8), code_stride = Int8Stride(n) + 8;
    for (const bool subtract_mean : {false, true}) {
      const DeviceArray<uint16_t> bf16(kRows * stride), codes(kRows * code_stride), expected(kRows * code_stride);
      RmsNormArgs args{.x = device_x.get(),
                       .x_stride = n,
                       .weight = device_weight.get(),
                       .rows = kRows,
                       .n = n,
                       .eps = 1e-6f,
                       .out_bf16 = bf16.get(),
                       .out_bf16_stride = stride,
                       .subtract_mean = subtract_mean};
      ASSERT_TRUE(Ran(LaunchRmsNorm(args, DeviceStream())));
      ASSERT_TRUE(Ran(LaunchEncodeInt8({.x = bf16.get(),
                                        .x_stride = stride,
                                        .cols = n,
                                        .out = expected.get(),
                                        .out_stride = code_stride,
                                        .rows = kRows},
                                       DeviceStream())));
      args.out_bf16 = nullptr;
      args.out_int8 = codes.get();
      args.out_int8_stride = code_stride;
      ASSERT_TRUE(Ran(LaunchRmsNorm(args, DeviceStream())));
      EXPECT_EQ(codes.Download(), expected.Download()) << n << " numbers";
      args.out_int8_stride = Int8Stride(n) - 8;
      EXPECT_EQ(LaunchRmsNorm(args, DeviceStream()).error, kInvalidArgument);
      args.out_int8_stride = code_stride;
      args.out_int8 += 4;
      EXPECT_EQ(LaunchRmsNorm(args, DeviceStream()).error, kInvalidArgument);
    }
  }
}

// As RmsNorm of x - mean(x). The mean's error, which shifts every number alike, is relative to the numbers' magnitude.
TEST(CudaElementwiseTest, LayerNormAgainstDouble) {
  constexpr int64_t kRows = 3;
  constexpr float kEps = 1e-5f;
  for (const int64_t n : {1, 31, 256, 257, 1000}) {
    std::vector<float> x = RandomFloats(kRows * n, 2, 3.0f);
    for (float& value : x) value += 2;
    const std::vector<float> weight = RandomFloats(n, 3);
    const DeviceArray<float> device_x(x), device_weight(weight), out(kRows * n);
    ASSERT_TRUE(Ran(LaunchRmsNorm({.x = device_x.get(),
                                   .x_stride = n,
                                   .weight = device_weight.get(),
                                   .rows = kRows,
                                   .n = n,
                                   .eps = kEps,
                                   .out = out.get(),
                                   .subtract_mean = true},
                                  DeviceStream())));
    const std::vector<float> got = out.Download();
    for (int64_t row = 0; row < kRows; ++row) {
      const std::span<const float> of(&x[static_cast<size_t>(row * n)], static_cast<size_t>(n));
      double sum = 0, magnitudes = 0, squares = 0;
      for (const float value : of) sum += value, magnitudes += std::fabs(value);
      const double mean = sum / static_cast<double>(n);
      for (const float value : of) squares += (value - mean) * (value - mean);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
      const double shift = Gamma(static_cast<double>(n) + 1) * magnitudes / static_cast<double>(n) * inverse;
      for (int64_t i = 0; i < n; ++i) {
        const double scale = inverse * weight[static_cast<size_t>(i)];
        const double truth = (of[static_cast<size_t>(i)] - mean) * scale;
        ASSERT_NEAR(got[static_cast<size_t>(row * n + i)], truth,
                    (NormTolerance(n) + Gamma(2) + shift) * std::fabs(truth) +
                        2 * shift * std::fabs(weight[static_cast<size_t>(i)]))
            << "row " << row << " number " << i << " of " << n;
      }
    }
  }
}

TEST(CudaElementwiseTest, ClampsAndKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {1, 255, 700}) {
    std::vector<float> x = RandomFloats(n + 1, 36, 4.0f);
    x[0] = nan;
    const DeviceArray<float> device_x(x);
    ASSERT_TRUE(Ran(LaunchClamp(1.5f, n, device_x.get(), DeviceStream())));
    const std::vector<float> got = device_x.Download();
    EXPECT_TRUE(std::isnan(got[0]));
    for (int64_t i = 1; i < n; ++i) ASSERT_EQ(got[i], std::clamp(x[i], -1.5f, 1.5f)) << i;
    EXPECT_EQ(got.back(), x.back());
  }
}

// Before rounding to BF16: the exponential (two units in the last place: 4 roundings), sum, quotient and product. If
// e^-g overflows, the result is 0 instead of at most |g| 2^-128 |up|.
TEST(CudaElementwiseTest, SiluMulAgainstDouble) {
  constexpr int64_t kRows = 2, kStride = 303;
  for (const int64_t n : {1, 255, 300}) {
    std::vector<float> gate = RandomFloats(kRows * kStride, 5, 20.0f);
    const std::vector<float> up = RandomFloats(kRows * kStride, 6, 3.0f);
    const float special[] = {0.0f, -0.0f, 88.0f, -88.0f, -88.8f, -120.0f, 120.0f, 1e-30f, -1e30f};
    std::copy(std::begin(special), std::end(special), gate.begin());
    const DeviceArray<float> device_gate(gate), device_up(up);
    const DeviceArray<uint16_t> out(kRows * (n + 2));
    ASSERT_TRUE(
        Ran(LaunchSiluMul(device_gate.get(), device_up.get(), kRows, n, kStride, out.get(), n + 2, DeviceStream())));
    const std::vector<uint16_t> got = out.Download();
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(row * kStride + i);
        const double truth = gate[at] / (1 + std::exp(-double{gate[at]})) * up[at];
        const double relative = (kUnitBf16 + Gamma(7)) * (1 + kUnitBf16);
        const double flushed =
            (std::fabs(gate[at]) < 1000 ? std::fabs(gate[at]) * 0x1p-128 + 0x1p-149 : 0) * std::fabs(up[at]);
        ASSERT_NEAR(FromBf16(got[static_cast<size_t>(row * (n + 2) + i)]), truth,
                    relative * std::fabs(truth) + flushed + 0x1p-134)
            << "silu(" << gate[at] << ") * " << up[at];
      }
      ASSERT_EQ(got[static_cast<size_t>(row * (n + 2) + n)], kUntouchedBits);
    }
  }
}

struct Angles {
  Angles(int64_t rows, int64_t dims, RopePairs pairs) {
    for (int64_t i = 0; i < rows * dims / 2; ++i) {
      const double angle = 0.37 * static_cast<double>(i * i % 1013);
      cosine.push_back(static_cast<float>(std::cos(angle) * 1.2));  // YaRN may scale both
      sine.push_back(static_cast<float>(std::sin(angle) * 1.2));
    }
    device_cosine = std::make_unique<DeviceArray<float>>(cosine);
    device_sine = std::make_unique<DeviceArray<float>>(sine);
    view = {device_cosine->get(), device_sine->get(), dims, pairs};
  }
  // Element i of a head's rotated ones, and the magnitude of its terms.
  std::pair<double, double> Rotated(const float* x, int64_t row, int64_t i) const {
    const int64_t half = view.dims / 2;
    const bool adjacent = view.pairs == RopePairs::kAdjacent;
    const int64_t pair = adjacent ? i / 2 : i % half;
    const double a = x[adjacent ? 2 * pair : pair], b = x[adjacent ? 2 * pair + 1 : pair + half];
    const double c = cosine[static_cast<size_t>(row * half + pair)], s = sine[static_cast<size_t>(row * half + pair)];
    const bool first = adjacent ? i % 2 == 0 : i < half;
    return first ? std::pair(a * c - b * s, std::fabs(a * c) + std::fabs(b * s))
                 : std::pair(a * s + b * c, std::fabs(a * s) + std::fabs(b * c));
  }
  std::vector<float> cosine, sine;
  std::unique_ptr<DeviceArray<float>> device_cosine, device_sine;
  RopeAngles view;
};

// Two roundings of F32, then one to BF16.
double RotationTolerance(double truth, double magnitude) {
  return (kUnitBf16 * std::fabs(truth) + Gamma(2) * magnitude) * (1 + kUnitBf16);
}

TEST(CudaElementwiseTest, RotateHeadsAgainstDouble) {
  struct Case {
    int64_t heads, head_dim, first, dims;
    RopePairs pairs;
  };
  constexpr int64_t kRows = 3;
  for (const Case& c : {Case{2, 192, 128, 64, RopePairs::kAdjacent}, Case{3, 128, 0, 128, RopePairs::kHalves},
                        Case{1, 128, 0, 64, RopePairs::kHalves}, Case{5, 6, 2, 2, RopePairs::kAdjacent}}) {
    const std::vector<float> x = RandomFloats(kRows * c.heads * c.head_dim, 8);
    const Angles angles(kRows, c.dims, c.pairs);
    const DeviceArray<float> device_x(x);
    const DeviceArray<uint16_t> out(kRows * c.heads * c.head_dim);
    ASSERT_TRUE(Ran(LaunchRotateHeads(device_x.get(), kRows, c.heads, c.head_dim, c.first, angles.view, out.get(),
                                      DeviceStream())));
    const std::vector<uint16_t> got = out.Download();
    for (int64_t i = 0; i < kRows * c.heads * c.head_dim; ++i) {
      const int64_t in_head = i % c.head_dim, row = i / (c.heads * c.head_dim);
      if (in_head < c.first || in_head >= c.first + c.dims) {
        ASSERT_EQ(got[static_cast<size_t>(i)], ToBf16(x[static_cast<size_t>(i)])) << "not rotated";
        continue;
      }
      const auto [truth, magnitude] =
          angles.Rotated(&x[static_cast<size_t>(i - in_head + c.first)], row, in_head - c.first);
      ASSERT_NEAR(FromBf16(got[static_cast<size_t>(i)]), truth, RotationTolerance(truth, magnitude));
    }
  }
}

TEST(CudaElementwiseTest, StoreLatentWritesPages) {
  constexpr int64_t kLatent = 48, kRope = 16, kKv = kLatent + kRope, kLayers = 3, kLayer = 1;
  constexpr int64_t kPageTokens = 64, kPages = 4, kPosition = 61, kRows = 70;  // 61 .. 130: three pages
  constexpr float kEps = 1e-6f;
  constexpr int64_t kPageNumbers = kLayers * kPageTokens * kKv;
  const std::vector<uint32_t> list = {2, 0, 3};
  const std::vector<float> kv_a = RandomFloats(kRows * kKv, 9), weight = RandomFloats(kLatent, 10);
  const Angles angles(kRows, kRope, RopePairs::kAdjacent);
  const DeviceArray<float> device_kv_a(kv_a), device_weight(weight);
  const DeviceArray<uint32_t> device_list(list);
  const DeviceArray<uint16_t> pages(kPages * kPageNumbers);
  const StoreLatentArgs args{.kv_a = device_kv_a.get(),
                             .weight = device_weight.get(),
                             .rows = kRows,
                             .latent = kLatent,
                             .eps = kEps,
                             .angles = angles.view,
                             .position = kPosition,
                             .pages = {.pages = reinterpret_cast<uint8_t*>(pages.get()),
                                       .list = device_list.get(),
                                       .page_bytes = kPageNumbers * 2,
                                       .layer_offset = kLayer * kPageTokens * kKv * 2,
                                       .page_tokens = kPageTokens,
                                       .kv_dim = kKv}};
  ASSERT_TRUE(Ran(LaunchStoreLatent(args, DeviceStream())));
  std::vector<uint16_t> got = pages.Download();
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t position = kPosition + row;
    uint16_t* entry = &got[static_cast<size_t>(list[static_cast<size_t>(position / kPageTokens)] * kPageNumbers +
                                               (kLayer * kPageTokens + position % kPageTokens) * kKv)];
    const float* x = &kv_a[static_cast<size_t>(row * kKv)];
    const double inverse = InverseRoot(x, kLatent, kEps);
    for (int64_t i = 0; i < kKv; ++i) {
      double truth, tolerance;
      if (i < kLatent) {
        truth = x[i] * inverse * weight[static_cast<size_t>(i)];
        tolerance = (kUnitBf16 + NormTolerance(kLatent)) * (1 + kUnitBf16) * std::fabs(truth);
      } else {
        const auto [value, magnitude] = angles.Rotated(x + kLatent, row, i - kLatent);
        truth = value;
        tolerance = RotationTolerance(value, magnitude);
      }
      ASSERT_NEAR(FromBf16(entry[i]), truth, tolerance) << "row " << row << " number " << i;
      entry[i] = kUntouchedBits;
    }
  }
  for (const uint16_t rest : got) ASSERT_EQ(rest, kUntouchedBits) << "written outside of the rows' entries";
}

// Rows of one token each; their sequences have their pages at different places in one list.
struct SeveralSequences {
  static constexpr int64_t kRows = 4, kPageTokens = 64;
  std::vector<uint32_t> list = {9, 4, 1, 0, 3, 2};
  std::vector<int32_t> positions = {63, 64, 0, 70}, first_page = {1, 1, 3, 4};

  // `rows` [kRows, kv_dim] are where the list and the positions put them.
  void ExpectStored(const std::vector<uint16_t>& rows, const std::vector<uint16_t>& pages, int64_t kv_dim) const {
    for (size_t row = 0; row < kRows; ++row) {
      const uint32_t page = list[static_cast<size_t>(first_page[row] + positions[row] / kPageTokens)];
      const auto expected = rows.begin() + static_cast<int64_t>(row) * kv_dim;
      const auto got = pages.begin() + (page * kPageTokens + positions[row] % kPageTokens) * kv_dim;
      EXPECT_TRUE(std::equal(expected, expected + kv_dim, got)) << row;
    }
  }
};

// Rows of several sequences, each with its own list: the same bits as rows stored one by one.
TEST(CudaElementwiseTest, StoreLatentOfSeveralSequences) {
  constexpr int64_t kLatent = 48, kRope = 16, kKv = kLatent + kRope, kRows = SeveralSequences::kRows;
  constexpr int64_t kPageNumbers = SeveralSequences::kPageTokens * kKv;
  const SeveralSequences sequences;
  const DeviceArray<float> kv_a(RandomFloats(kRows * kKv, 9)), weight(RandomFloats(kLatent, 10));
  const Angles angles(kRows, kRope, RopePairs::kAdjacent);
  const DeviceArray<uint32_t> device_list(sequences.list);
  const DeviceArray<int32_t> device_positions(sequences.positions), device_first(sequences.first_page);
  const DeviceArray<uint16_t> pages(5 * kPageNumbers), copy(kRows * kKv), alone(kRows * kKv);
  StoreLatentArgs args{.kv_a = kv_a.get(),
                       .weight = weight.get(),
                       .rows = kRows,
                       .latent = kLatent,
                       .eps = 1e-6f,
                       .angles = angles.view,
                       .pages = {.pages = reinterpret_cast<uint8_t*>(pages.get()),
                                 .list = device_list.get(),
                                 .page_bytes = kPageNumbers * 2,
                                 .kv_dim = kKv},
                       .positions = device_positions.get(),
                       .first_page = device_first.get(),
                       .copy = copy.get()};
  ASSERT_TRUE(Ran(LaunchStoreLatent(args, DeviceStream())));
  args.pages = {.pages = reinterpret_cast<uint8_t*>(alone.get()), .page_bytes = kPageNumbers * 2, .kv_dim = kKv};
  args.positions = args.first_page = nullptr;
  args.copy = nullptr;
  ASSERT_TRUE(Ran(LaunchStoreLatent(args, DeviceStream())));
  EXPECT_EQ(copy.Download(), alone.Download());
  sequences.ExpectStored(alone.Download(), pages.Download(), kKv);
}

TEST(CudaElementwiseTest, StoreLatentAndANormInOneLaunch) {
  constexpr int64_t kLatent = 40, kRope = 8, kKv = kLatent + kRope, kRows = 3, kWidth = 70, kStride = 72;
  const Angles angles(kRows, kRope, RopePairs::kAdjacent);
  const DeviceArray<float> kv_a(RandomFloats(kRows * kKv, 41)), weight(RandomFloats(kWidth, 42)),
      x(RandomFloats(kRows * kWidth, 43));
  std::vector<std::vector<uint16_t>> stored, normed, coded;
  for (const bool together : {false, true}) {
    const DeviceArray<uint16_t> cache(kRows * kKv), out(kRows * kStride), codes(kRows * kStride);
    const StoreLatentArgs store{.kv_a = kv_a.get(),
                                .weight = weight.get(),
                                .rows = kRows,
                                .latent = kLatent,
                                .eps = 1e-6f,
                                .angles = angles.view,
                                .pages = {.pages = reinterpret_cast<uint8_t*>(cache.get()),
                                          .list = nullptr,
                                          .page_bytes = 64 * kKv * 2,
                                          .kv_dim = kKv}};
    const RmsNormArgs norm{.x = x.get(),
                           .x_stride = kWidth,
                           .weight = weight.get(),
                           .rows = kRows,
                           .n = kWidth,
                           .eps = 1e-5f,
                           .out_bf16 = out.get(),
                           .out_bf16_stride = kStride,
                           .out_int8 = codes.get(),
                           .out_int8_stride = kStride};
    if (together) {
      ASSERT_TRUE(Ran(LaunchStoreLatentAndNorm(store, norm, DeviceStream())));
    } else {
      ASSERT_TRUE(Ran(LaunchStoreLatent(store, DeviceStream())));
      ASSERT_TRUE(Ran(LaunchRmsNorm(norm, DeviceStream())));
    }
    stored.push_back(cache.Download());
    normed.push_back(out.Download());
    coded.push_back(codes.Download());
    StoreLatentArgs wrong = store;
    wrong.latent = kLatent + 1;
    EXPECT_EQ(LaunchStoreLatentAndNorm(wrong, norm, DeviceStream()).error, kInvalidArgument);
  }
  EXPECT_EQ(stored[0], stored[1]);
  EXPECT_EQ(normed[0], normed[1]);
  EXPECT_EQ(coded[0], coded[1]);
}

TEST(CudaElementwiseTest, StoreKeysValuesWritesPages) {
  constexpr int64_t kHeads = 2, kHead = 24, kRope = 16, kWidth = kHeads * kHead, kKv = 2 * kWidth;
  constexpr int64_t kPageTokens = 64, kPosition = 63, kRows = 3, kPageNumbers = kPageTokens * kKv;
  const std::vector<uint32_t> list = {1, 0};
  const std::vector<float> keys = RandomFloats(kRows * kWidth, 11), values = RandomFloats(kRows * kWidth, 12);
  const Angles angles(kRows, kRope, RopePairs::kHalves);
  const DeviceArray<float> device_keys(keys), device_values(values);
  const DeviceArray<uint32_t> device_list(list);
  const DeviceArray<uint16_t> pages(2 * kPageNumbers);
  ASSERT_TRUE(Ran(LaunchStoreKeysValues({.keys = device_keys.get(),
                                         .values = device_values.get(),
                                         .rows = kRows,
                                         .kv_heads = kHeads,
                                         .head_dim = kHead,
                                         .angles = angles.view,
                                         .position = kPosition,
                                         .pages = {.pages = reinterpret_cast<uint8_t*>(pages.get()),
                                                   .list = device_list.get(),
                                                   .page_bytes = kPageNumbers * 2,
                                                   .layer_offset = 0,
                                                   .page_tokens = kPageTokens,
                                                   .kv_dim = kKv}},
                                        DeviceStream())));
  std::vector<uint16_t> got = pages.Download();
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t position = kPosition + row;
    uint16_t* entry = &got[static_cast<size_t>(list[static_cast<size_t>(position / kPageTokens)] * kPageNumbers +
                                               position % kPageTokens * kKv)];
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t in_head = i % kHead;
      const auto at = static_cast<size_t>(row * kWidth + i);
      if (in_head < kRope) {
        const auto [truth, magnitude] = angles.Rotated(&keys[at - static_cast<size_t>(in_head)], row, in_head);
        ASSERT_NEAR(FromBf16(entry[i]), truth, RotationTolerance(truth, magnitude));
      } else {
        ASSERT_EQ(entry[i], ToBf16(keys[at]));
      }
      ASSERT_EQ(entry[kWidth + i], ToBf16(values[at]));
      entry[i] = entry[kWidth + i] = kUntouchedBits;
    }
  }
  for (const uint16_t rest : got) ASSERT_EQ(rest, kUntouchedBits) << "written outside of the rows' entries";
}

// Rows of several sequences, each with its own list: the same bits as rows stored consecutively.
TEST(CudaElementwiseTest, StoreKeysValuesOfSeveralSequences) {
  constexpr int64_t kHeads = 2, kHead = 16, kWidth = kHeads * kHead, kKv = 2 * kWidth;
  constexpr int64_t kRows = SeveralSequences::kRows, kPageNumbers = SeveralSequences::kPageTokens * kKv;
  const SeveralSequences sequences;
  const DeviceArray<float> keys(RandomFloats(kRows * kWidth, 13)), values(RandomFloats(kRows * kWidth, 14));
  const Angles angles(kRows, kHead, RopePairs::kHalves);
  const DeviceArray<uint32_t> device_list(sequences.list);
  const DeviceArray<int32_t> device_positions(sequences.positions), device_first(sequences.first_page);
  const DeviceArray<uint16_t> pages(5 * kPageNumbers), copy(kRows * kKv), alone(kRows * kKv);
  StoreKeysValuesArgs args{.keys = keys.get(),
                           .values = values.get(),
                           .rows = kRows,
                           .kv_heads = kHeads,
                           .head_dim = kHead,
                           .angles = angles.view,
                           .pages = {.pages = reinterpret_cast<uint8_t*>(pages.get()),
                                     .list = device_list.get(),
                                     .page_bytes = kPageNumbers * 2,
                                     .kv_dim = kKv},
                           .positions = device_positions.get(),
                           .first_page = device_first.get(),
                           .copy = copy.get()};
  ASSERT_TRUE(Ran(LaunchStoreKeysValues(args, DeviceStream())));
  args.pages = {.pages = reinterpret_cast<uint8_t*>(alone.get()), .page_bytes = kPageNumbers * 2, .kv_dim = kKv};
  args.positions = args.first_page = nullptr;
  args.copy = nullptr;
  ASSERT_TRUE(Ran(LaunchStoreKeysValues(args, DeviceStream())));
  EXPECT_EQ(copy.Download(), alone.Download());
  sequences.ExpectStored(alone.Download(), pages.Download(), kKv);
}

// Blocks as the KV pool has them, from entries of which each number is another; heads whose values fill no group of
// rows.
TEST(CudaElementwiseTest, UnpacksBlocksOfKeysAndValues) {
  constexpr int64_t kLayers = 3;
  for (const kv::PackedHeads heads : {kv::PackedHeads{1, 4}, {3, 16}, {2, 64}, {1, 80}, {2, 128}, {1, 196}}) {
    SCOPED_TRACE(::testing::Message() << heads.kv_heads << " heads of " << heads.dim);
    const int64_t kv_dim = 2 * heads.kv_heads * heads.dim, numbers = kLayers * kv::kBlockTokens * kv_dim;
    const std::vector<uint16_t> entries = RandomBf16(numbers, 37);
    std::vector<uint16_t> packed(kLayers * heads.elements(), kUntouchedBits);
    for (int64_t at = 0; at < numbers; ++at) {
      const int64_t layer = at / kv_dim / kv::kBlockTokens, token = at / kv_dim % kv::kBlockTokens,
                    in_entry = at % kv_dim;
      const int64_t head = in_entry / heads.dim % heads.kv_heads, i = in_entry % heads.dim;
      const bool is_key = in_entry < kv_dim / 2;
      packed[layer * heads.elements() + (is_key ? heads.Key(head, token, i) : heads.Value(head, token, i))] =
          entries[at];
    }
    const DeviceArray<uint16_t> device_packed(packed), rows(numbers + 1);
    ASSERT_TRUE(Ran(LaunchUnpackBlocks({.packed = device_packed.get(),
                                        .layers = kLayers,
                                        .kv_heads = heads.kv_heads,
                                        .head_dim = heads.dim,
                                        .rows = rows.get()},
                                       DeviceStream())));
    const std::vector<uint16_t> got = rows.Download();
    EXPECT_TRUE(std::equal(entries.begin(), entries.end(), got.begin()));
    EXPECT_EQ(got.back(), kUntouchedBits);
  }
  EXPECT_EQ(LaunchUnpackBlocks({.layers = 1, .kv_heads = 1, .head_dim = 6}, DeviceStream()).error, kInvalidArgument);
}

TEST(CudaElementwiseTest, CopyOfAnyWords) {
  const std::vector<float> from = RandomFloats(1001, 30);
  const DeviceArray<float> device_from(from);
  for (const int64_t words : {1, 255, 256, 257, 999}) {
    const DeviceArray<float> to(words + 2);
    ASSERT_TRUE(Ran(LaunchCopy(device_from.get() + 1, 4 * words, to.get() + 1, DeviceStream())));
    const std::vector<float> got = to.Download();
    EXPECT_TRUE(std::equal(got.begin() + 1, got.end() - 1, from.begin() + 1)) << words;
    EXPECT_TRUE(std::isnan(got.front()) && std::isnan(got.back())) << words;
  }
  const DeviceArray<float> to(4);
  EXPECT_EQ(LaunchCopy(device_from.get(), 6, to.get(), DeviceStream()).error, kInvalidArgument);
  const auto* odd = reinterpret_cast<const uint8_t*>(device_from.get()) + 2;
  EXPECT_EQ(LaunchCopy(odd, 4, to.get(), DeviceStream()).error, kInvalidArgument);
}

TEST(CudaElementwiseTest, NoRowsLaunchNothing) {
  EXPECT_TRUE(Ran(LaunchSumParts({}, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchCopy(nullptr, 0, nullptr, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchEmbed(static_cast<const uint16_t*>(nullptr), nullptr, 0, 8, nullptr, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchRmsNorm({}, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchAddExperts({}, {}, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchSiluMul(nullptr, nullptr, 0, 8, 8, nullptr, 8, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchRotateHeads(nullptr, 0, 1, 8, 0, {}, nullptr, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchStoreLatent({}, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchStoreKeysValues({}, DeviceStream())));
  EXPECT_TRUE(Ran(LaunchUnpackBlocks({}, DeviceStream())));
}

}  // namespace
}  // namespace moestro::cuda
