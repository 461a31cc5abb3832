#include "common/kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/math.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

// A sequence with keys and values in pages of a pool, in any order; everything else in the pool is NaN.
struct PagedCase {
  int64_t heads, kv_heads, key_dim;
  int64_t position, rows;
  float spread = 1;  // of queries: the greater, the sharper the attention
  int64_t window = 0;
  bool sinks = false;  // of different heads: below, near and above the logarithms of the tokens' sums
  static constexpr int64_t kValueDim = 128;  // but with keys of 64

  int64_t value_dim() const { return key_dim == 64 ? 64 : kValueDim; }
  int64_t First(int64_t at) const { return window == 0 ? 0 : std::max<int64_t>(0, at + 1 - window); }
  static float Sink(int64_t head) { return 2.5f * static_cast<float>(head); }
  std::vector<float> Sinks() const {
    std::vector<float> all;
    for (int64_t head = 0; head < heads; ++head) all.push_back(Sink(head));
    return all;
  }

  int64_t tokens() const { return position + rows; }
  int64_t pages() const { return CeilDiv(tokens(), kKvBlock); }
};

struct Paged {
  // [tokens, numbers] random values in pages of `layers` layers, of which one is used.
  Paged(int64_t tokens, int64_t numbers, uint32_t seed)
      : numbers_(numbers), values(RandomBf16(tokens * numbers, seed)) {
    const int64_t pages = CeilDiv(tokens, kKvBlock);
    std::vector<uint16_t> pool(static_cast<size_t>((pages + 1) * page_numbers()), kBf16Nan);
    for (int64_t page = 0; page < pages; ++page) list.push_back(static_cast<uint32_t>(pages - page));
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(&values[static_cast<size_t>(t * numbers)], numbers,
                  &pool[static_cast<size_t>(list[static_cast<size_t>(t / kKvBlock)] * page_numbers() + layer_numbers() +
                                            t % kKvBlock * numbers)]);
    }
    device_pool = std::make_unique<DeviceArray<uint16_t>>(pool);
    device_list = std::make_unique<DeviceArray<uint32_t>>(list);
  }
  int64_t layer_numbers() const { return kKvBlock * numbers_; }
  int64_t page_numbers() const { return 2 * layer_numbers(); }
  KvVectors View(int64_t first, int64_t head_stride) const {
    return {device_pool->get() + layer_numbers() + first, device_list->get(), page_numbers(), numbers_, head_stride};
  }
  const uint16_t* Token(int64_t t) const { return &values[static_cast<size_t>(t * numbers_)]; }

  int64_t numbers_;
  std::vector<uint16_t> values;
  std::vector<uint32_t> list;
  std::unique_ptr<DeviceArray<uint16_t>> device_pool;
  std::unique_ptr<DeviceArray<uint32_t>> device_list;
};

// Relative error of merging parts. A merge rounds like a block: exponentials of the log-sums, which are off by 2^-24 of
// scores below 100, and a rescaling. So does a sink.
constexpr double kMerge = 100 * 2 * kUnitF32 + 8 * kUnitF32;

// merges: relative error of merging parts, or of sinks. key(t, kv_head, i) and value(t, kv_head, i) give the elements
// of keys and values for the truth.
template <typename Key, typename Value>
void CheckAgainstTruth(const PagedCase& c, const PrefillAttentionArgs& args, const std::vector<uint16_t>& queries,
                       const std::vector<uint16_t>& out, const Key& key, const Value& value, double merges = 0) {
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t kv_head = head / (c.heads / c.kv_heads);
      const int64_t seen = c.position + row + 1, first = c.First(c.position + row);
      std::vector<double> scores;
      double score_error = 0;
      for (int64_t t = first; t < seen; ++t) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < c.key_dim; ++i) {
          const double term = double{FromBf16(queries[static_cast<size_t>((row * c.heads + head) * c.key_dim + i)])} *
                              key(t, kv_head, i);
          sum += term;
          magnitude += std::fabs(term);
        }
        scores.push_back(sum * args.scale);
        // The product's mma, scale times log2(e), times the score, minus the maximum (as large).
        const double roundings = kMmaRoundings * static_cast<double>(c.key_dim) / 16 + 5;
        score_error = std::max(score_error, Gamma(roundings) * magnitude * args.scale);
      }
      const double greatest = *std::max_element(scores.begin(), scores.end());
      double sum = c.sinks ? std::exp(PagedCase::Sink(head) - greatest) : 0;
      for (double& score : scores) sum += score = std::exp(score - greatest);
      // Relative error of a weight: score and maximum, 2^-22 of the exponential, at most one rescaling per block, and
      // rounding to BF16, which the sum of weights shares.
      const double blocks = static_cast<double>(CeilDiv(seen, kKvBlock));
      const double weight = std::expm1(2 * score_error) + blocks * (0x1p-22 + Gamma(1)) + kUnitBf16 + merges;
      for (int64_t i = 0; i < c.value_dim(); ++i) {
        double truth = 0, magnitude = 0;
        for (int64_t t = first; t < seen; ++t) {
          const double term = scores[static_cast<size_t>(t - first)] / sum * value(t, kv_head, i);
          truth += term;
          magnitude += std::fabs(term);
        }
        // Numerator and denominator; the sums over all tokens, by mma and by lane; the quotient, rounded to BF16.
        const double sums = Gamma(kMmaRoundings * 4 * blocks + 64 * blocks);
        const double tolerance =
            2 * (weight + sums) / (1 - weight) * magnitude + (kUnitBf16 + Gamma(1)) * std::fabs(truth);
        const uint16_t got = out[static_cast<size_t>(row * args.out_stride + head * c.value_dim() + i)];
        ASSERT_NEAR(FromBf16(got), truth, tolerance) << "row " << row << " head " << head << " number " << i;
      }
    }
    for (int64_t i = c.heads * c.value_dim(); i < args.out_stride; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(row * args.out_stride + i)], 0xffff) << "written past the last head";
    }
  }
}

void CheckGroupedQueries(const PagedCase& c) {
  SCOPED_TRACE(::testing::Message() << "GQA, " << c.rows << " rows from " << c.position);
  const int64_t width = c.kv_heads * c.key_dim;
  const Paged cache(c.tokens(), 2 * width, 1);  // keys of all heads, then values
  const std::vector<uint16_t> queries = RandomBf16(c.rows * c.heads * c.key_dim, 2, c.spread);
  const DeviceArray<uint16_t> device_queries(queries);
  const DeviceArray<float> sinks(c.Sinks());
  PrefillAttentionArgs args{.heads = c.heads,
                            .kv_heads = c.kv_heads,
                            .key_dim = c.key_dim,
                            .value_dim = c.value_dim(),
                            .scale = 0.0884f,
                            .keys = cache.View(0, c.key_dim),
                            .shared_keys = {},
                            .values = cache.View(width, c.key_dim),
                            .position = c.position,
                            .window = c.window,
                            .sinks = c.sinks ? sinks.get() : nullptr,
                            .rows = c.rows,
                            .queries = device_queries.get(),
                            .query_stride = c.heads * c.key_dim,
                            .out = nullptr,
                            .out_stride = c.heads * c.value_dim() + 2};
  const DeviceArray<uint16_t> out(c.rows * args.out_stride);
  args.out = out.get();
  ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
  CheckAgainstTruth(
      c, args, queries, out.Download(),
      [&](int64_t t, int64_t head, int64_t i) { return FromBf16(cache.Token(t)[head * c.key_dim + i]); },
      [&](int64_t t, int64_t head, int64_t i) { return FromBf16(cache.Token(t)[width + head * c.key_dim + i]); },
      c.sinks ? kMerge : 0);
}

// Keys and values of all heads, expanded side by side; the rotated key is in the pages after the latent.
void CheckLatent(const PagedCase& c) {
  SCOPED_TRACE(::testing::Message() << "MLA, " << c.rows << " rows from " << c.position);
  constexpr int64_t kNope = 128, kRope = 64, kLatent = 48, kHead = kNope + PagedCase::kValueDim;
  const Paged cache(c.tokens(), kLatent + kRope, 3);
  const std::vector<uint16_t> expanded = RandomBf16(c.tokens() * c.heads * kHead, 4);
  const std::vector<uint16_t> queries = RandomBf16(c.rows * c.heads * c.key_dim, 5, c.spread);
  const DeviceArray<uint16_t> device_expanded(expanded), device_queries(queries);
  const KvVectors keys{device_expanded.get(), nullptr, kKvBlock * c.heads * kHead, c.heads * kHead, kHead};
  KvVectors values = keys;
  values.data += kNope;
  PrefillAttentionArgs args{.heads = c.heads,
                            .kv_heads = c.heads,
                            .key_dim = c.key_dim,
                            .value_dim = PagedCase::kValueDim,
                            .scale = 0.1352f,
                            .keys = keys,
                            .shared_keys = cache.View(kLatent, 0),
                            .values = values,
                            .position = c.position,
                            .rows = c.rows,
                            .queries = device_queries.get(),
                            .query_stride = c.heads * c.key_dim,
                            .out = nullptr,
                            .out_stride = c.heads * PagedCase::kValueDim};
  const DeviceArray<uint16_t> out(c.rows * args.out_stride);
  args.out = out.get();
  ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
  const auto at = [&](int64_t t, int64_t head, int64_t i) {
    return FromBf16(expanded[static_cast<size_t>((t * c.heads + head) * kHead + i)]);
  };
  CheckAgainstTruth(
      c, args, queries, out.Download(),
      [&](int64_t t, int64_t head, int64_t i) {
        return i < kNope ? at(t, head, i) : FromBf16(cache.Token(t)[kLatent + i - kNope]);
      },
      [&](int64_t t, int64_t head, int64_t i) { return at(t, head, kNope + i); });
}

// By warps, or by groups of four where the device has their products.
class CudaAttentionTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!SetWarpGroups(GetParam())) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  }
  void TearDown() override { ResetWarpGroups(); }
};
INSTANTIATE_TEST_SUITE_P(Of, CudaAttentionTest, ::testing::Bool(),
                         [](const auto& groups) { return groups.param ? "WarpGroups" : "Warps"; });

TEST_P(CudaAttentionTest, GroupedQueriesAgainstDouble) {
  CheckGroupedQueries({.heads = 4, .kv_heads = 2, .key_dim = 128, .position = 0, .rows = 1});
  CheckGroupedQueries({.heads = 2, .kv_heads = 1, .key_dim = 128, .position = 0, .rows = 65});
  CheckGroupedQueries({.heads = 1, .kv_heads = 1, .key_dim = 128, .position = 63, .rows = 130, .spread = 8});
  CheckGroupedQueries({.heads = 2, .kv_heads = 2, .key_dim = 128, .position = 100, .rows = 17});
  CheckGroupedQueries(
      {.heads = 1, .kv_heads = 1, .key_dim = 128, .position = 300, .rows = 131});  // blocks that all rows see
}

TEST_P(CudaAttentionTest, HeadsOf64Numbers) {
  CheckGroupedQueries({.heads = 4, .kv_heads = 2, .key_dim = 64, .position = 0, .rows = 1});
  CheckGroupedQueries({.heads = 2, .kv_heads = 1, .key_dim = 64, .position = 70, .rows = 140, .spread = 4});
}

TEST_P(CudaAttentionTest, WindowsAndSinks) {
  for (const int64_t window : {1, 33, 64, 100, 129}) {
    CheckGroupedQueries({.heads = 4, .kv_heads = 2, .key_dim = 64, .position = 5, .rows = 150, .window = window});
    CheckGroupedQueries(
        {.heads = 2, .kv_heads = 1, .key_dim = 128, .position = 300, .rows = 20, .window = window, .sinks = true});
  }
  CheckGroupedQueries({.heads = 3, .kv_heads = 1, .key_dim = 64, .position = 63, .rows = 3, .sinks = true});
}

TEST_P(CudaAttentionTest, UnabsorbedMlaAgainstDouble) {
  CheckLatent({.heads = 2, .kv_heads = 2, .key_dim = 192, .position = 0, .rows = 1});
  CheckLatent({.heads = 2, .kv_heads = 2, .key_dim = 192, .position = 0, .rows = 129});
  CheckLatent({.heads = 1, .kv_heads = 1, .key_dim = 192, .position = 127, .rows = 33, .spread = 8});
  CheckLatent({.heads = 1, .kv_heads = 1, .key_dim = 192, .position = 260, .rows = 70});
}

// Keys and values in three parts that are computed separately and merged, as in context parallelism; rows before a part
// see none of it.
TEST_P(CudaAttentionTest, PartsMergedByTheirLogSums) {
  for (const int64_t window : {0, 70}) {
    const PagedCase c{
        .heads = 2, .kv_heads = 1, .key_dim = 128, .position = 30, .rows = 140, .window = window, .sinks = window > 0};
    const DeviceArray<float> sinks(c.Sinks());
    const Paged cache(c.tokens(), 2 * c.key_dim, 6);
    const std::vector<uint16_t> queries = RandomBf16(c.rows * c.heads * c.key_dim, 7, 3);
    const DeviceArray<uint16_t> device_queries(queries), out(c.rows * c.heads * PagedCase::kValueDim);
    PrefillAttentionArgs args{.heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .key_dim = c.key_dim,
                              .value_dim = PagedCase::kValueDim,
                              .scale = 0.0884f,
                              .keys = cache.View(0, c.key_dim),
                              .shared_keys = {},
                              .values = cache.View(c.key_dim, c.key_dim),
                              .position = c.position,
                              .window = c.window,
                              .rows = c.rows,
                              .queries = device_queries.get(),
                              .query_stride = c.heads * c.key_dim,
                              .out_stride = c.heads * PagedCase::kValueDim};
    const DeviceArray<float> total(c.rows * c.heads * PagedCase::kValueDim), total_log_sum(c.rows * c.heads),
        part(c.rows * c.heads * PagedCase::kValueDim), part_log_sum(c.rows * c.heads);
    const int64_t begins[] = {128, 0, 64}, sizes[] = {0, 64, 64};  // the last part first: many rows see none of it
    for (size_t i = 0; i < 3; ++i) {
      args.keys.pages = args.values.pages = cache.device_list->get() + begins[i] / kKvBlock;
      args.first_token = begins[i];
      args.tokens = sizes[i];
      args.partial = i == 0 ? total.get() : part.get();
      args.log_sum = i == 0 ? total_log_sum.get() : part_log_sum.get();
      ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
      if (i == 0) {
        EXPECT_EQ(total_log_sum.Download()[0], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(total.Download()[0], 0.0f);
        continue;
      }
      ASSERT_TRUE(Ran(LaunchMergeAttention({.rows = c.rows,
                                            .heads = c.heads,
                                            .value_dim = PagedCase::kValueDim,
                                            .total = total.get(),
                                            .total_log_sum = total_log_sum.get(),
                                            .part = part.get(),
                                            .part_log_sum = part_log_sum.get(),
                                            .sinks = c.sinks ? sinks.get() : nullptr,
                                            .out = i == 2 ? out.get() : nullptr,
                                            .out_stride = args.out_stride},
                                           DeviceStream())));
    }
    const double merges = (c.sinks ? 3 : 2) * kMerge;
    CheckAgainstTruth(
        c, args, queries, out.Download(), [&](int64_t t, int64_t, int64_t i) { return FromBf16(cache.Token(t)[i]); },
        [&](int64_t t, int64_t, int64_t i) { return FromBf16(cache.Token(t)[c.key_dim + i]); }, merges);
  }
}

// Context parallelism with the stripes of two ranks. Each rank attends to its own stripes, then to the other's, some of
// which come after all of its own; the total becomes the result.
TEST_P(CudaAttentionTest, StripesOfTwoRanksInTheRingsOrder) {
  constexpr int64_t kTokens = 5 * kKvBlock - 17;
  constexpr int64_t kStripes[4][2] = {{0, 64}, {64, 128}, {128, 192}, {192, kTokens}};
  constexpr int kRankOf[4] = {0, 1, 1, 0};
  constexpr int kRing[2][4] = {{0, 3, 1, 2}, {1, 2, 0, 3}};  // stripes in the order in which a rank has them
  const PagedCase whole{.heads = 2, .kv_heads = 1, .key_dim = 128, .position = 0, .rows = kTokens};
  const Paged cache(kTokens, 2 * whole.key_dim, 8);
  const int64_t width = whole.heads * whole.key_dim, out_stride = whole.heads * PagedCase::kValueDim;
  const std::vector<uint16_t> queries = RandomBf16(kTokens * width, 9, 3);
  const DeviceArray<uint16_t> device_queries(queries);
  for (int stripe = 0; stripe < 4; ++stripe) {
    const auto& [begin, end] = kStripes[stripe];
    SCOPED_TRACE(::testing::Message() << "queries from " << begin);
    PagedCase c = whole;
    c.position = begin;
    c.rows = end - begin;
    const DeviceArray<float> total(c.rows * out_stride), total_log_sum(c.rows * c.heads), part(c.rows * out_stride),
        part_log_sum(c.rows * c.heads);
    const DeviceArray<uint16_t> out(c.rows * out_stride);
    PrefillAttentionArgs args{.heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .key_dim = c.key_dim,
                              .value_dim = PagedCase::kValueDim,
                              .scale = 0.0884f,
                              .keys = cache.View(0, c.key_dim),
                              .shared_keys = {},
                              .values = cache.View(c.key_dim, c.key_dim),
                              .position = begin,
                              .rows = c.rows,
                              .queries = device_queries.get() + begin * width,
                              .query_stride = width,
                              .out_stride = out_stride};
    MergeAttentionArgs merge{.rows = c.rows,
                             .heads = c.heads,
                             .value_dim = PagedCase::kValueDim,
                             .total = total.get(),
                             .total_log_sum = total_log_sum.get(),
                             .part = part.get(),
                             .part_log_sum = part_log_sum.get(),
                             .out_stride = out_stride};
    bool is_first = true;
    for (const int other : kRing[kRankOf[stripe]]) {
      const auto& [first, last] = kStripes[other];
      args.keys.pages = args.values.pages = cache.device_list->get() + first / kKvBlock;
      args.first_token = first;
      args.tokens = last - first;
      args.partial = is_first ? total.get() : part.get();
      args.log_sum = is_first ? total_log_sum.get() : part_log_sum.get();
      ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
      if (!is_first) {
        ASSERT_TRUE(Ran(LaunchMergeAttention(merge, DeviceStream())));
      }
      is_first = false;
    }
    const std::vector<float> totals = total.Download();
    merge.part = merge.part_log_sum = nullptr;
    merge.out = out.get();
    ASSERT_TRUE(Ran(LaunchMergeAttention(merge, DeviceStream())));
    EXPECT_EQ(total.Download(), totals) << "nothing is merged any more";
    CheckAgainstTruth(
        c, args, std::vector<uint16_t>(queries.begin() + begin * width, queries.begin() + end * width), out.Download(),
        [&](int64_t t, int64_t, int64_t i) { return FromBf16(cache.Token(t)[i]); },
        [&](int64_t t, int64_t, int64_t i) { return FromBf16(cache.Token(t)[c.key_dim + i]); }, 3 * kMerge);
  }
}

// Rows of a prompt that begins later: another place in the tile, other blocks that all of its rows see.
TEST_P(CudaAttentionTest, BitsDoNotDependOnTheTile) {
  constexpr int64_t kTokens = 300, kDim = 128, kBegin = 131, kRows = kTokens - kBegin;
  const DeviceArray<uint16_t> queries(RandomBf16(kTokens * kDim, 1)), kv(RandomBf16(kTokens * kDim, 2));
  const KvVectors vectors{kv.get(), nullptr, kKvBlock * kDim, kDim, kDim};
  for (const int64_t window : {0, 70}) {
    const DeviceArray<uint16_t> all(kTokens * kDim), some(kRows * kDim);
    PrefillAttentionArgs args{.heads = 1,
                              .kv_heads = 1,
                              .key_dim = kDim,
                              .value_dim = kDim,
                              .scale = 0.0884f,
                              .keys = vectors,
                              .shared_keys = {},
                              .values = vectors,
                              .window = window,
                              .rows = kTokens,
                              .queries = queries.get(),
                              .query_stride = kDim,
                              .out = all.get(),
                              .out_stride = kDim};
    ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
    args.position = kBegin;
    args.rows = kRows;
    args.queries += kBegin * kDim;
    args.out = some.get();
    ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
    const std::vector<uint16_t> expected = all.Download(), got = some.Download();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + kBegin * kDim)) << "window " << window;
  }
}

// Two heads of four, by pointers to the first of them: the same bits as among all four.
TEST_P(CudaAttentionTest, SomeHeadsAtATime) {
  constexpr int64_t kHeads = 4, kRows = 20, kDim = 128, kFirst = 1, kSome = 2;
  const DeviceArray<uint16_t> queries(RandomBf16(kRows * kHeads * kDim, 1)), kv(RandomBf16(kRows * kHeads * kDim, 2)),
      all(kRows * kHeads * kDim), some(kRows * kHeads * kDim);
  const KvVectors vectors{kv.get(), nullptr, kKvBlock * kHeads * kDim, kHeads * kDim, kDim};
  PrefillAttentionArgs args{.heads = kHeads,
                            .kv_heads = kHeads,
                            .key_dim = kDim,
                            .value_dim = kDim,
                            .scale = 0.0884f,
                            .keys = vectors,
                            .shared_keys = {},
                            .values = vectors,
                            .rows = kRows,
                            .queries = queries.get(),
                            .query_stride = kHeads * kDim,
                            .out = all.get(),
                            .out_stride = kHeads * kDim};
  ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
  args.heads = args.kv_heads = kSome;
  args.keys.data = args.values.data = kv.get() + kFirst * kDim;
  args.queries = queries.get() + kFirst * kDim;
  args.out = some.get() + kFirst * kDim;
  ASSERT_TRUE(Ran(LaunchPrefillAttention(args, DeviceStream())));
  const std::vector<uint16_t> expected = all.Download(), got = some.Download();
  for (int64_t i = 0; i < kRows * kHeads * kDim; ++i) {
    const int64_t head = i / kDim % kHeads;
    const bool written = head >= kFirst && head < kFirst + kSome;
    ASSERT_EQ(got[static_cast<size_t>(i)], written ? expected[static_cast<size_t>(i)] : 0xffff) << i;
  }
}

TEST_P(CudaAttentionTest, RefusesWhatItHasNoKernelFor) {
  const DeviceArray<uint16_t> numbers(1024);
  const KvVectors vectors{numbers.get(), nullptr, 64 * 128, 128, 0};
  const PrefillAttentionArgs good{.heads = 1,
                                  .kv_heads = 1,
                                  .key_dim = 128,
                                  .value_dim = 128,
                                  .keys = vectors,
                                  .shared_keys = {},
                                  .values = vectors,
                                  .rows = 1,
                                  .queries = numbers.get(),
                                  .query_stride = 128,
                                  .out = numbers.get()};
  PrefillAttentionArgs args = good;
  args.key_dim = 576;
  EXPECT_EQ(LaunchPrefillAttention(args, DeviceStream()).error, kInvalidArgument);
  args = good;
  args.keys.token_stride = 129;
  EXPECT_EQ(LaunchPrefillAttention(args, DeviceStream()).error, kInvalidArgument);
  args = good;
  args.shared_keys = vectors;
  EXPECT_EQ(LaunchPrefillAttention(args, DeviceStream()).error, kInvalidArgument);
  args = good;
  args.rows = 0;
  EXPECT_TRUE(LaunchPrefillAttention(args, DeviceStream()).ok());
}

}  // namespace
}  // namespace moestro::cuda
