#include "common/kernels/cuda/decode_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/math.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

constexpr int64_t kPage = 64;
constexpr int64_t kStage = 32;  // tokens that the kernel processes together

struct StepShape {
  int64_t heads = 0;
  int64_t latent = 512;
  int64_t rope = 64;  // grouped queries: elements of a key
  float spread = 1;   // of queries: the greater, the sharper the attention
  int64_t kv_heads = 0;
  int64_t window = 0;
  int64_t splits = 0;  // of DecodeAttentionArgs
  bool sinks = false;  // of different heads: below, near and above the logarithms of the tokens' sums

  int64_t First(int64_t at) const { return window == 0 ? 0 : std::max<int64_t>(0, at + 1 - window); }
  static float Sink(int64_t head) { return 2.5f * static_cast<float>(head); }
  // Elements of a token in the cache and of a head's key, and the offsets of the head's key and value in the cache.
  int64_t kv_dim() const { return kv_heads > 0 ? 2 * kv_heads * latent : latent + rope; }
  int64_t key_dim() const { return kv_heads > 0 ? latent : latent + rope; }
  int64_t KeyOf(int64_t head) const { return kv_heads > 0 ? head / (heads / kv_heads) * latent : 0; }
  int64_t ValueOf(int64_t head) const { return kv_heads > 0 ? kv_heads * latent + KeyOf(head) : 0; }
};

// Rows of separate sequences, with cached vectors in pages of a pool, in any order. Everything else in the pool is NaN.
class Batch {
 public:
  Batch(const StepShape& s, const std::vector<int32_t>& positions, uint32_t seed)
      : shape(s),
        at(positions),
        latent_queries(RandomBf16(rows() * s.heads * s.latent, seed, s.spread)),
        rotated_queries(RandomBf16(rows() * s.heads * RotatedStride(), seed + 1, s.spread)) {
    std::vector<uint32_t> list = {0xffffffff};  // a page that nobody uses
    std::vector<int32_t> first;
    uint32_t pages = 0;
    for (const int32_t position : at) pages += static_cast<uint32_t>(position / kPage + 1);
    std::vector<uint16_t> pool(static_cast<size_t>((pages + 1) * PageNumbers()), kBf16Nan);
    uint32_t next = pages;
    for (size_t row = 0; row < at.size(); ++row) {
      vectors.push_back(RandomBf16((at[row] + 1) * s.kv_dim(), seed + 2 + static_cast<uint32_t>(row)));
      first.push_back(static_cast<int32_t>(list.size()));
      for (int64_t t = 0; t <= at[row]; ++t) {
        if (t % kPage == 0) list.push_back(next--);
        std::copy_n(&vectors[row][static_cast<size_t>(t * s.kv_dim())], s.kv_dim(),
                    &pool[static_cast<size_t>(list.back() * PageNumbers() + LayerNumbers() + t % kPage * s.kv_dim())]);
      }
    }
    pool_ = std::make_unique<DeviceArray<uint16_t>>(pool);
    list_ = std::make_unique<DeviceArray<uint32_t>>(list);
    first_ = std::make_unique<DeviceArray<int32_t>>(first);
    positions_ = std::make_unique<DeviceArray<int32_t>>(at);
    std::vector<float> sinks;
    for (int64_t head = 0; head < s.heads; ++head) sinks.push_back(StepShape::Sink(head));
    sinks_ = std::make_unique<DeviceArray<float>>(sinks);
    partial_ = std::make_unique<DeviceArray<float>>(rows() * kMaxSplits * s.heads * s.latent);
    log_sum_ = std::make_unique<DeviceArray<float>>(rows() * kMaxSplits * s.heads);
  }

  int64_t rows() const { return static_cast<int64_t>(at.size()); }
  // Other elements precede a rotated query.
  int64_t RotatedStride() const { return 10 + shape.rope; }

  // The first `count` rows from `begin` on.
  std::vector<uint16_t> Run(int64_t begin, int64_t count) const {
    const DeviceArray<uint16_t> latent(latent_queries), rotated(rotated_queries),
        out(count * shape.heads * shape.latent);
    const int64_t latent_row = shape.heads * shape.latent, rotated_row = shape.heads * RotatedStride();
    const DecodeAttentionArgs args{
        .rows = count,
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .latent = shape.latent,
        .scale = kScale,
        .latent_queries = {latent.get() + begin * latent_row, latent_row, shape.latent},
        .rotated_queries = {rotated.get() + begin * rotated_row + 10, rotated_row, RotatedStride()},
        .splits = shape.splits,
        .window = shape.window,
        .sinks = shape.sinks ? sinks_->get() : nullptr,
        .pages = {.pages = reinterpret_cast<uint8_t*>(pool_->get()),
                  .list = list_->get(),
                  .page_bytes = PageNumbers() * 2,
                  .layer_offset = LayerNumbers() * 2,
                  .page_tokens = kPage,
                  .kv_dim = shape.kv_dim()},
        .positions = positions_->get() + begin,
        .first_page = first_->get() + begin,
        .partial = partial_->get(),
        .log_sum = log_sum_->get(),
        .out = out.get()};
    EXPECT_TRUE(Ran(LaunchDecodeAttention(args, DeviceStream())));
    return out.Download();
  }
  std::vector<float> LogSums() const { return log_sum_->Download(); }

  void ExpectNearTruth(const std::vector<uint16_t>& out) const {
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t head = 0; head < shape.heads; ++head) ExpectNearTruth(out, row, head);
    }
  }

  const StepShape shape;
  const std::vector<int32_t> at;
  std::vector<uint16_t> latent_queries, rotated_queries;
  std::vector<std::vector<uint16_t>> vectors;  // of each row: [position + 1, kv_dim]
  static constexpr float kScale = 0.1352f;

 private:
  int64_t LayerNumbers() const { return kPage * shape.kv_dim(); }
  int64_t PageNumbers() const { return 2 * LayerNumbers(); }
  double Query(int64_t row, int64_t head, int64_t i) const {
    const int64_t query = row * shape.heads + head;
    if (shape.kv_heads > 0) i += shape.latent;  // there is no latent query
    return FromBf16(i < shape.latent
                        ? latent_queries[static_cast<size_t>(query * shape.latent + i)]
                        : rotated_queries[static_cast<size_t>(query * RotatedStride() + 10 + i - shape.latent)]);
  }

  void ExpectNearTruth(const std::vector<uint16_t>& out, int64_t row, int64_t head) const {
    const std::vector<uint16_t>& cached = vectors[static_cast<size_t>(row)];
    const int64_t tokens = at[static_cast<size_t>(row)] + 1, first = shape.First(tokens - 1);
    std::vector<double> scores;
    double score_error = 0, greatest_magnitude = 0;
    for (int64_t t = first; t < tokens; ++t) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < shape.key_dim(); ++i) {
        const double term =
            Query(row, head, i) * FromBf16(cached[static_cast<size_t>(t * shape.kv_dim() + shape.KeyOf(head) + i)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      scores.push_back(sum * kScale);
      // The product's mma, three sums of slices, scale times log2(e), times the score, minus the maximum (as large).
      const double roundings = kMmaRoundings * std::ceil(static_cast<double>(shape.key_dim()) / 16) + 3 + 5;
      score_error = std::max(score_error, Gamma(roundings) * magnitude * kScale);
      greatest_magnitude = std::max(greatest_magnitude, magnitude * kScale);
    }
    const double greatest = *std::max_element(scores.begin(), scores.end());
    // A sink is weighed as a split's sums are.
    double sum = shape.sinks ? std::exp(StepShape::Sink(head) - greatest) : 0;
    for (double& score : scores) sum += score = std::exp(score - greatest);
    const double stages = static_cast<double>(CeilDiv(tokens, kStage));
    // A split's log-sum: two roundings and the logarithm, of at most the greatest score and log(tokens). Its weight:
    // the difference of two log-sums, and the exponential.
    const double merge = 8 * kUnitF32 * (greatest_magnitude + std::log(static_cast<double>(tokens)) + 1) + 8 * kUnitF32;
    // Relative error of a weight: score and maximum, 2^-22 of the exponential, at most one rescaling per stage,
    // rounding to BF16, which the sum of weights shares, and the split's.
    const double weight =
        std::expm1(2 * score_error) + stages * (0x1p-22 + Gamma(1)) + kUnitBf16 + merge + (shape.sinks ? merge : 0);
    // The sums over all tokens, by mma and by thread, and over splits.
    const double sums = Gamma((kMmaRoundings * 2 + 8) * stages + 8 + 2 * kMaxSplits);
    for (int64_t i = 0; i < shape.latent; ++i) {
      double truth = 0, magnitude = 0;
      for (int64_t t = first; t < tokens; ++t) {
        const double term = scores[static_cast<size_t>(t - first)] / sum *
                            FromBf16(cached[static_cast<size_t>(t * shape.kv_dim() + shape.ValueOf(head) + i)]);
        truth += term;
        magnitude += std::fabs(term);
      }
      // Numerator and denominator; the quotients; rounding to BF16.
      const double tolerance =
          2 * (weight + sums) / (1 - weight) * magnitude + (kUnitBf16 + Gamma(2)) * std::fabs(truth);
      const uint16_t got = out[static_cast<size_t>((row * shape.heads + head) * shape.latent + i)];
      ASSERT_NEAR(FromBf16(got), truth, tolerance) << "row " << row << " head " << head << " number " << i;
    }
  }

  std::unique_ptr<DeviceArray<uint16_t>> pool_;
  std::unique_ptr<DeviceArray<uint32_t>> list_;
  std::unique_ptr<DeviceArray<int32_t>> first_, positions_;
  std::unique_ptr<DeviceArray<float>> sinks_, partial_, log_sum_;
};

void Check(const StepShape& shape, const std::vector<int32_t>& positions) {
  SCOPED_TRACE(::testing::Message() << shape.heads << " heads of " << shape.latent << " + " << shape.rope);
  const Batch batch(shape, positions, 1);
  batch.ExpectNearTruth(batch.Run(0, batch.rows()));
}

TEST(CudaDecodeAttentionTest, LengthsAroundStagesPagesAndSplits) {
  Check({.heads = 2}, {0, 30, 31, 32, 62, 63, 64, 126, 127, 128, 129, 200});
}

TEST(CudaDecodeAttentionTest, SharpAttention) { Check({.heads = 3, .spread = 6}, {300, 5}); }

TEST(CudaDecodeAttentionTest, MoreHeadsThanABlockHas) { Check({.heads = 37}, {70}); }

TEST(CudaDecodeAttentionTest, OtherDimensions) {
  Check({.heads = 3, .latent = 128, .rope = 64}, {65, 3});
  Check({.heads = 3, .latent = 72, .rope = 32}, {65, 3});
  Check({.heads = 1, .latent = 8, .rope = 0}, {40});
}

TEST(CudaDecodeAttentionTest, GroupedQueries) {
  Check({.heads = 4, .latent = 128, .rope = 128, .kv_heads = 2}, {0, 31, 63, 64, 130});
  Check({.heads = 6, .latent = 64, .rope = 64, .spread = 4, .kv_heads = 6}, {65, 3});
  Check({.heads = 74, .latent = 16, .rope = 16, .kv_heads = 2}, {70});  // more in a group than a block has
  Check({.heads = 3, .latent = 288, .rope = 288, .kv_heads = 1}, {40});
}

TEST(CudaDecodeAttentionTest, WindowsAndSinks) {
  for (const int64_t window : {1, 31, 33, 64, 100, 200}) {
    Check({.heads = 6, .latent = 64, .rope = 64, .kv_heads = 2, .window = window, .sinks = window > 32},
          {0, 30, 31, 32, 63, 64, 95, 96, 130, 400});
  }
  Check({.heads = 3, .latent = 128, .rope = 128, .kv_heads = 1, .sinks = true}, {0, 65});
  Check({.heads = 2, .latent = 64, .rope = 64, .kv_heads = 1, .window = kMaxSplits * 2 * kStage + 37, .sinks = true},
        {kMaxSplits * 2 * kStage + 200});
}

TEST(CudaDecodeAttentionTest, GroupedQueriesOverManySplits) {
  Check({.heads = 2, .latent = 64, .rope = 64, .spread = 3, .kv_heads = 1}, {kMaxSplits * 2 * kStage + 100});
}

// Enough tokens that splits exceed the shortest length.
TEST(CudaDecodeAttentionTest, LongerThanTheShortestSplits) {
  Check({.heads = 2, .latent = 64, .rope = 16, .spread = 3}, {kMaxSplits * 2 * kStage + 100});
}

// One split, and splits that end in the middle of a page; no stage is left over, or one is.
TEST(CudaDecodeAttentionTest, SplitsOfAnyLength) {
  for (const int64_t splits : {1, 2, 3, 5, 33, kMaxSplits}) {
    Check({.heads = 2, .latent = 64, .rope = 16, .spread = 3, .splits = splits}, {0, 63, 64, 255, 256, 480, 1100});
    Check({.heads = 4, .latent = 64, .rope = 64, .kv_heads = 2, .window = 333, .splits = splits, .sinks = true},
          {331, 332, 333, 365, 700});
  }
}

TEST(CudaDecodeAttentionTest, SplitsFillTheGpu) {
  EXPECT_EQ(DecodeSplits(4, 170), 42);  // DeepSeek-V3 on an RTX 5090: 168 blocks
  EXPECT_EQ(DecodeSplits(4, 132), 33);
  EXPECT_EQ(DecodeSplits(4, 128), 32);
  EXPECT_EQ(DecodeSplits(1, 170), kMaxSplits);
  EXPECT_EQ(DecodeSplits(64, 170), 5);  // 128 blocks would leave a quarter idle, 320 in two waves do not
  EXPECT_EQ(DecodeSplits(500, 170), 1);
  EXPECT_EQ(DecodeSplits(1, 1), 1);
}

// With zero queries, every token has the same weight: the split's sums count them, and the result is the mean.
TEST(CudaDecodeAttentionTest, CountsEveryTokenOnce) {
  for (const int32_t last : {0, 31, 32, 63, 64, 127, 128, 255, 256, 300}) {
    Batch batch({.heads = 1, .latent = 16, .rope = 8}, {last}, 5);
    std::ranges::fill(batch.latent_queries, 0);
    std::ranges::fill(batch.rotated_queries, 0);
    batch.ExpectNearTruth(batch.Run(0, 1));
    double count = 0;
    const std::vector<float> log_sums = batch.LogSums();
    for (int64_t split = 0; split < CeilDiv(int64_t{last} + 1, 2 * kStage); ++split) {
      count += std::exp(double{log_sums[static_cast<size_t>(split)]});
    }
    EXPECT_NEAR(count, last + 1, 0.01);
  }
}

TEST(CudaDecodeAttentionTest, ARowsBitsDoNotDependOnTheBatch) {
  const Batch batch({.heads = 3, .latent = 128, .rope = 64}, {130, 63, 0, 257, 64, 5, 31, 128, 90}, 7);
  const int64_t numbers = 3 * 128;
  const std::vector<uint16_t> all = batch.Run(0, batch.rows());
  for (int64_t count = 1; count <= batch.rows(); ++count) {
    const int64_t begin = batch.rows() - count;
    const std::vector<uint16_t> got = batch.Run(begin, count);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + begin * numbers)) << "last " << count << " rows";
  }
}

TEST(CudaDecodeAttentionTest, RefusesWhatItHasNoKernelFor) {
  const DeviceArray<uint16_t> numbers(1024);
  const DeviceArray<uint32_t> list(1);
  const DecodeAttentionArgs good{.rows = 1,
                                 .heads = 1,
                                 .latent = 512,
                                 .latent_queries = {numbers.get(), 512, 512},
                                 .rotated_queries = {numbers.get(), 64, 64},
                                 .pages = {.pages = reinterpret_cast<uint8_t*>(numbers.get()),
                                           .list = list.get(),
                                           .page_bytes = 64 * 576 * 2,
                                           .kv_dim = 576}};
  const auto expect_refused = [&](auto change) {
    DecodeAttentionArgs args = good;
    change(args);
    EXPECT_EQ(LaunchDecodeAttention(args, DeviceStream()).error, kInvalidArgument);
  };
  expect_refused([](DecodeAttentionArgs& a) { a.latent = 520; });
  expect_refused([](DecodeAttentionArgs& a) { a.latent = 60; });
  expect_refused([](DecodeAttentionArgs& a) { a.pages.kv_dim = 584; });
  expect_refused([](DecodeAttentionArgs& a) { a.pages.kv_dim = 504; });
  expect_refused([](DecodeAttentionArgs& a) { a.pages.page_tokens = 32; });
  expect_refused([](DecodeAttentionArgs& a) { a.kv_heads = 1; });
  expect_refused([](DecodeAttentionArgs& a) { a.window = 5; });
  expect_refused([](DecodeAttentionArgs& a) { a.splits = kMaxSplits + 1; });
  expect_refused([](DecodeAttentionArgs& a) { a.splits = -1; });
  expect_refused([&](DecodeAttentionArgs& a) { a.sinks = reinterpret_cast<const float*>(numbers.get()); });
  const auto grouped = [](DecodeAttentionArgs& a, int64_t heads, int64_t kv_heads, int64_t dim) {
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.latent = dim;
    a.pages.kv_dim = 2 * kv_heads * dim;
  };
  expect_refused([&](DecodeAttentionArgs& a) { grouped(a, 3, 2, 64); });
  expect_refused([&](DecodeAttentionArgs& a) { grouped(a, 2, 1, 304); });
  expect_refused([&](DecodeAttentionArgs& a) { grouped(a, 2, 1, 24); });
  expect_refused([](DecodeAttentionArgs& a) { a.rotated_queries.head_stride = 63; });
  DecodeAttentionArgs none = good;
  none.rows = 0;
  EXPECT_TRUE(LaunchDecodeAttention(none, DeviceStream()).ok());
}

}  // namespace
}  // namespace moestro::cuda
