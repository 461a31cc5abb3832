#include "common/model/attention/flash_attention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "common/kv/kv_block.h"
#include "common/tensor/dtype.h"
#include "tests/support/aligned_memory.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

// Two blocks past the end of a partial result (16 blocks), and 3 tokens.
constexpr int64_t kLongContext = 18 * kAttentionBlock + 3;

std::vector<uint16_t> Random(int64_t count, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<uint16_t> numbers(static_cast<size_t>(count));
  for (uint16_t& number : numbers) number = ToBf16(normal(random));
  return numbers;
}

// Keys and values of some sequences: [sequence][token][keys of all kv_heads, values of all], and queries for every
// position. Grouped queries also take them packed: the same blocks, of which keys of absent tokens are NaN.
struct FlashCase {
  AttentionShape shape;
  int64_t context;
  int64_t sequences;
  bool values_in_keys;  // MLA: the value is the first part of the key
  int64_t window;       // 0: none; otherwise there are sinks, too
  std::vector<uint16_t> kv, all_queries;
  std::vector<float> sinks;
  bool packs = false;
  AlignedMemory packed;  // [sequence][block]

  FlashCase(AttentionShape s, int64_t tokens, int64_t count, bool shared, int64_t last = 0)
      : shape(s), context(tokens), sequences(count), values_in_keys(shared), window(last) {
    kv = Random(sequences * context * stride(), 1, 1);
    all_queries = Random(sequences * context * shape.heads * shape.key_dim, 2, 1);
    // Below, near and above the scores, for both ways to join them.
    for (int64_t head = 0; head < shape.heads && window > 0; ++head) {
      sinks.push_back(static_cast<float>(head % 3) * 6 - 6);
    }
  }
  int64_t key_bytes() const { return PackedBytes(DType::kBF16, kAttentionBlock, shape.key_dim); }
  int64_t head_bytes() const { return key_bytes() + PackedBytes(DType::kBF16, shape.value_dim, kAttentionBlock); }
  int64_t blocks() const { return CeilDiv(context, kAttentionBlock); }
  FlashCase&& Packed() && {
    packs = true;
    packed = AlignedMemory(sequences * blocks() * shape.kv_heads * head_bytes());
    for (int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (int64_t token = 0; token < blocks() * kAttentionBlock; ++token) {
        for (int64_t head = 0; head < shape.kv_heads; ++head) {
          auto* const keys = reinterpret_cast<uint16_t*>(PackedHead(sequence, token / kAttentionBlock, head));
          const int64_t row = token % kAttentionBlock;
          for (int64_t i = 0; i < shape.key_dim; ++i) {
            keys[PackedElement(PaddedCols(shape.key_dim), row, i)] =
                token < context ? Key(sequence, head, token)[i] : uint16_t{0x7fc0};
          }
          for (int64_t i = 0; i < shape.value_dim && token < context; ++i) {
            keys[key_bytes() / 2 + PackedElement(kAttentionBlock, i, row)] = Value(sequence, head, token)[i];
          }
        }
      }
    }
    return std::move(*this);
  }
  uint8_t* PackedHead(int64_t sequence, int64_t block, int64_t head) const {
    return packed.data() + ((sequence * blocks() + block) * shape.kv_heads + head) * head_bytes();
  }
  AttentionRule rule() const { return {window, sinks.empty() ? nullptr : sinks.data()}; }
  int64_t First(int64_t position) const { return window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window); }
  int64_t stride() const { return shape.kv_heads * (shape.key_dim + (values_in_keys ? 0 : shape.value_dim)); }
  const uint16_t* Row(int64_t sequence, int64_t token) const {
    return kv.data() + (sequence * context + token) * stride();
  }
  const uint16_t* Key(int64_t sequence, int64_t kv_head, int64_t token) const {
    return Row(sequence, token) + kv_head * shape.key_dim;
  }
  const uint16_t* Value(int64_t sequence, int64_t kv_head, int64_t token) const {
    return Row(sequence, token) + (values_in_keys ? 0 : shape.kv_heads * shape.key_dim) + kv_head * shape.value_dim;
  }
  const uint16_t* Query(int64_t sequence, int64_t position, int64_t head) const {
    return all_queries.data() + ((sequence * context + position) * shape.heads + head) * shape.key_dim;
  }
};

struct Rows {
  int64_t sequence, position, count;
};

// BF16 [row][heads * value_dim]. With `parts`: attends to these KV blocks in sequence, then merges.
std::vector<std::vector<uint16_t>> Attend(const FlashCase& c, const CpuKernels& kernels, WorkerPool& pool,
                                          const std::vector<Rows>& rows,
                                          const std::vector<std::vector<IndexRange>>& parts = {},
                                          std::vector<std::atomic<int>>* strangers = nullptr) {
  FlashAttention attention(kernels, pool, c.shape);
  std::vector<QueryRun> runs;
  int64_t count = 0;
  for (const Rows& r : rows) {
    runs.push_back({count, r.count, r.position});
    count += r.count;
  }
  const int64_t group = c.shape.group();
  std::vector<uint16_t> queries(static_cast<size_t>(count * c.shape.heads * c.shape.key_dim));
  for (int64_t kv_head = 0; kv_head < c.shape.kv_heads; ++kv_head) {
    for (size_t run = 0; run < rows.size(); ++run) {
      for (int64_t row = 0; row < rows[run].count; ++row) {
        const uint16_t* from = c.Query(rows[run].sequence, rows[run].position + row, kv_head * group);
        std::copy_n(from, group * c.shape.key_dim,
                    queries.begin() + (kv_head * count + runs[run].begin + row) * group * c.shape.key_dim);
      }
    }
  }
  std::vector<uint16_t> out(static_cast<size_t>(count * c.shape.heads * c.shape.value_dim));
  const auto source = [&](const FlashAttention::BlockRequest& request) {
    if (strangers != nullptr && pool.DomainOf(request.worker) != kv::DomainOfBlock(request.block, pool.domains())) {
      ++(*strangers)[static_cast<size_t>(request.run)];
    }
    EXPECT_GE(request.block, c.First(rows[static_cast<size_t>(request.run)].position) / kAttentionBlock);
    const int64_t sequence = rows[static_cast<size_t>(request.run)].sequence;
    const int64_t token = request.block * kAttentionBlock;
    if (c.packs) {
      return KvBlock{.next = c.PackedHead(sequence, request.next_block, request.kv_heads.begin),
                     .next_bytes = request.kv_heads.size() * c.head_bytes(),
                     .packed = c.PackedHead(sequence, request.block, request.kv_heads.begin),
                     .packed_values = c.key_bytes(),
                     .head_bytes = c.head_bytes()};
    }
    return KvBlock{.keys = c.Key(sequence, request.kv_heads.begin, token),
                   .key_stride = c.stride(),
                   .values = c.Value(sequence, request.kv_heads.begin, token),
                   .value_stride = c.stride()};
  };
  const int64_t out_stride = c.shape.heads * c.shape.value_dim;
  if (parts.empty()) {
    attention.Run(runs, queries.data(), c.rule(), source, out.data(), out_stride);
  } else {
    AttentionSums total(count * c.shape.heads, c.shape.value_dim);
    total.Clear(count * c.shape.heads, c.shape.value_dim);
    for (const auto& blocks : parts) attention.Add(runs, queries.data(), c.rule(), blocks, source, total);
    attention.Finish(count, c.rule(), total, out.data(), out_stride);
  }
  std::vector<std::vector<uint16_t>> result;
  const int64_t width = c.shape.heads * c.shape.value_dim;
  for (int64_t row = 0; row < count; ++row)
    result.emplace_back(out.begin() + row * width, out.begin() + (row + 1) * width);
  return result;
}

std::vector<std::vector<uint16_t>> Attend(const FlashCase& c, const CpuKernels& kernels, int threads,
                                          const std::vector<Rows>& rows,
                                          const std::vector<std::vector<IndexRange>>& parts = {}) {
  WorkerPool pool(threads);
  return Attend(c, kernels, pool, rows, parts);
}

// Derivation, for a sink as for a token. Queries, keys and values are exact. A is the greatest sum |q k| times the
// scale. A score is off by Gamma(key_dim + 1) A, the exponential's argument by 2 A units for each of its rescalings,
// each weight by another BF16 rounding, sums by Gamma(2 context). Numerator and denominator have the same weights; the
// result is rounded once more to BF16.
void ExpectCloseToExact(const FlashCase& c, const CpuKernels& kernels, const Rows& row,
                        const std::vector<uint16_t>& actual) {
  for (int64_t head = 0; head < c.shape.heads; ++head) {
    const int64_t kv_head = head / c.shape.group();
    const uint16_t* query = c.Query(row.sequence, row.position, head);
    std::vector<double> weights;
    double magnitude = 0, greatest = -1e300;
    const int64_t first = c.First(row.position);
    for (int64_t t = first; t <= row.position; ++t) {
      double score = 0, absolute = 0;
      for (int64_t i = 0; i < c.shape.key_dim; ++i) {
        const double product = double{FromBf16(query[i])} * FromBf16(c.Key(row.sequence, kv_head, t)[i]);
        score += product * c.shape.scale;
        absolute += std::fabs(product) * c.shape.scale;
      }
      weights.push_back(score);
      greatest = std::max(greatest, score);
      magnitude = std::max(magnitude, absolute);
    }
    if (c.window > 0) greatest = std::max(greatest, double{c.sinks[static_cast<size_t>(head)]});
    double sum = c.window > 0 ? std::exp(c.sinks[static_cast<size_t>(head)] - greatest) : 0;
    for (double& weight : weights) sum += weight = std::exp(weight - greatest);
    const auto units = [](double n) { return n * 0x1p-24; };
    const auto tokens = static_cast<double>(weights.size());
    const double rescalings = 3 + tokens / static_cast<double>(kAttentionBlock);
    const double off = units(static_cast<double>(c.shape.key_dim) + 1 + 2 * rescalings) * magnitude +
                       units(6 * rescalings + 2 * tokens) + 0x1p-8;
    for (int64_t i = 0; i < c.shape.value_dim; ++i) {
      double value = 0, absolute = 0;
      for (int64_t t = first; t <= row.position; ++t) {
        const double v = FromBf16(c.Value(row.sequence, kv_head, t)[i]);
        value += weights[static_cast<size_t>(t - first)] / sum * v;
        absolute += weights[static_cast<size_t>(t - first)] / sum * std::fabs(v);
      }
      ASSERT_NEAR(FromBf16(actual[static_cast<size_t>(head * c.shape.value_dim + i)]), value,
                  2 * std::expm1(off) * absolute + 0x1p-8 * std::fabs(value))
          << kernels.isa << ", head " << head << ", position " << row.position;
    }
  }
}

std::vector<FlashCase> Cases() {
  std::vector<FlashCase> cases;
  cases.emplace_back(AttentionShape{6, 2, 40, 24, 0.16f}, kLongContext, 2, false);        // grouped queries
  cases.emplace_back(AttentionShape{6, 2, 64, 128, 0.12f, 2}, kLongContext, 2, false);    // grouped, heads together
  cases.emplace_back(AttentionShape{4, 2, 64, 64, 0.12f, 2, 2}, kLongContext, 2, false);  // two blocks a step
  cases.emplace_back(AttentionShape{40, 1, 36, 32, 0.15f, 1, 2}, kLongContext, 2, true);  // absorbed MLA
  cases.emplace_back(AttentionShape{40, 1, 36, 32, 0.15f, 1, 4}, kLongContext, 2, true);
  cases.emplace_back(AttentionShape{3, 3, 33, 17, 0.17f}, 3 * kAttentionBlock, 2, false);  // un-absorbed MLA
  // Windows of no round size, of one token, of whole blocks, and across the end of a partial result.
  for (const int64_t window : {1, 33, 64, 100, 1027}) {
    cases.emplace_back(AttentionShape{6, 2, 40, 24, 0.16f}, kLongContext, 2, false, window);
  }
  cases.emplace_back(AttentionShape{6, 2, 64, 128, 0.12f, 2}, kLongContext, 2, false, 129);
  cases.push_back(FlashCase(AttentionShape{6, 2, 40, 24, 0.16f}, kLongContext, 2, false).Packed());
  for (const int64_t window : {0, 100}) {
    cases.push_back(FlashCase(AttentionShape{6, 2, 64, 128, 0.12f, 2}, kLongContext, 2, false, window).Packed());
  }
  return cases;
}

TEST(FlashAttention, AgainstDouble) {
  for (const FlashCase& c : Cases()) {
    for (const CpuKernels* kernels : DistinctKernels()) {
      for (const int64_t position : {int64_t{0}, int64_t{62}, int64_t{63}, int64_t{64}, c.context - 1}) {
        const Rows row{1, position, 1};
        ASSERT_NO_FATAL_FAILURE(ExpectCloseToExact(c, *kernels, row, Attend(c, *kernels, 2, {row})[0]));
      }
    }
  }
}

TEST(FlashAttention, BitsDependOnTheQueryAlone) {
  for (const FlashCase& c : Cases()) {
    for (const CpuKernels* kernels : DistinctKernels()) {
      const int64_t begin = c.context - 150;
      const auto chunk = Attend(c, *kernels, 1, {{0, begin, 150}});
      for (const int threads : {1, 2, 5}) {
        EXPECT_EQ(Attend(c, *kernels, threads, {{0, begin, 150}}), chunk)
            << kernels->isa << ", " << threads << " threads";
        // Alone; with rows of another sequence before and after it; in the middle of a shorter chunk.
        for (const int64_t row : {int64_t{0}, int64_t{77}, int64_t{149}}) {
          const auto i = static_cast<size_t>(row);
          EXPECT_EQ(Attend(c, *kernels, threads, {{0, begin + row, 1}})[0], chunk[i]);
          EXPECT_EQ(Attend(c, *kernels, threads, {{1, 5, 3}, {0, begin + row, 1}, {1, 130, 1}})[3], chunk[i]);
          const int64_t first = std::max<int64_t>(0, row - 20);
          EXPECT_EQ(Attend(c, *kernels, threads, {{0, begin + first, 21}})[static_cast<size_t>(row - first)], chunk[i]);
        }
      }
    }
  }
}

TEST(FlashAttention, DomainsAttendToTheirOwnBlocksWithTheSameBits) {
  for (const FlashCase& c : Cases()) {
    for (const CpuKernels* kernels : DistinctKernels()) {
      const std::vector<Rows> rows = {{0, c.context - 3, 3}, {1, c.context - 1, 1}};
      const auto expected = Attend(c, *kernels, 1, rows);
      for (const int domains : {2, 3}) {
        WorkerPool pool({.threads = 5, .domains = domains});
        EXPECT_EQ(Attend(c, *kernels, pool, rows), expected) << kernels->isa << ", " << domains << " domains";
        std::vector<std::atomic<int>> strangers(1);
        EXPECT_EQ(Attend(c, *kernels, pool, {rows[1]}, {}, &strangers)[0], expected[3]);
        // A single partial result belongs to whoever is free.
        if (c.context <= kv::kSplitBlocks * kAttentionBlock || c.window > 0) continue;
        EXPECT_EQ(strangers[0], 0) << kernels->isa;
      }
    }
  }
}

// As ranks of a context-parallel prefill do: any blocks in any order.
TEST(FlashAttention, InPartsAgainstDouble) {
  for (const FlashCase& c : Cases()) {
    const int64_t blocks = CeilDiv(c.context, kAttentionBlock);
    const std::vector<std::vector<IndexRange>> parts = {
        {{blocks - 1, blocks}}, {}, {{0, 0}, {blocks / 2, blocks - 1}}, {{1, blocks / 2}, {0, 1}}};
    for (const CpuKernels* kernels : DistinctKernels()) {
      const std::vector<Rows> rows = {{1, 0, 3}, {0, 62, 4}, {1, c.context - 2, 2}};
      const auto results = Attend(c, *kernels, 2, rows, parts);
      size_t i = 0;
      for (const Rows& run : rows) {
        for (int64_t row = 0; row < run.count; ++row) {
          ASSERT_NO_FATAL_FAILURE(ExpectCloseToExact(c, *kernels, {run.sequence, run.position + row, 1}, results[i++]));
        }
      }
    }
  }
}

TEST(FlashAttention, OnePartIsTheWhole) {
  for (const FlashCase& c : Cases()) {
    for (const CpuKernels* kernels : DistinctKernels()) {
      const std::vector<Rows> rows = {{0, c.context - 70, 70}, {1, 0, 3}};
      EXPECT_EQ(Attend(c, *kernels, 2, rows, {{{0, CeilDiv(c.context, kAttentionBlock)}}}),
                Attend(c, *kernels, 2, rows));
    }
  }
}

TEST(FlashAttention, PackedBlocksHaveTheBitsOfRows) {
  for (const AttentionShape& shape : {AttentionShape{6, 2, 40, 24, 0.16f}, AttentionShape{6, 2, 64, 128, 0.12f, 2}}) {
    const FlashCase rows(shape, kLongContext, 2, false, 0);
    const FlashCase packed = FlashCase(shape, kLongContext, 2, false, 0).Packed();
    for (const CpuKernels* kernels : DistinctKernels()) {
      for (const Rows& run : {Rows{1, rows.context - 1, 1}, Rows{0, 62, 3}, Rows{0, 0, 130}}) {
        EXPECT_EQ(Attend(packed, *kernels, 2, {run}), Attend(rows, *kernels, 2, {run})) << kernels->isa;
      }
    }
  }
}

TEST(FlashAttention, NoRowsIsNothingToDo) {
  const FlashCase c = std::move(Cases()[2]);
  EXPECT_TRUE(Attend(c, *DistinctKernels()[0], 2, {}).empty());
}

}  // namespace
}  // namespace moestro::model
