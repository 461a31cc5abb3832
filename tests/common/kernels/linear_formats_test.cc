// `linear` with F16 weights and with formats of blocks.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "tests/common/kernels/amx/model_test.h"
#include "tests/common/kernels/linear_test.h"

namespace moestro {
namespace {

constexpr DType kTypes[] = {DType::kF16,   DType::kQ8_0,   DType::kQ4_0,  DType::kQ5_0,   DType::kQ4K,
                            DType::kQ5K,   DType::kQ6K,    DType::kI4G32, DType::kI4G128, DType::kMXFP4,
                            DType::kI4Z32, DType::kI4Z128, DType::kQ4_1,  DType::kQ5_1};

// Inputs that are summed before they are scaled, and columns that a row must be a multiple of.
int64_t ChainInputs(DType type) { return type == DType::kF16 ? kScaleBlock : FormatOf(type).sub_block; }
int64_t Unit(DType type) { return type == DType::kF16 ? 1 : FormatOf(type).row_block; }

// What the scales of a row are like.
enum class Scales { kUsual, kZero, kLeast, kGreatest, kAny };
// Most rows have usual scales. With activations near 1 no result overflows: BF16 and E8M0 scales end at 2^100 here.
Scales ScalesOfRow(int64_t row) {
  constexpr Scales kCycle[] = {Scales::kUsual, Scales::kUsual,    Scales::kZero,  Scales::kUsual,
                               Scales::kLeast, Scales::kGreatest, Scales::kUsual, Scales::kAny};
  return kCycle[row % 8];
}

uint32_t Between(std::mt19937& random, uint32_t least, uint32_t greatest) {
  return least + static_cast<uint32_t>(random()) % (greatest - least + 1);
}

uint16_t RandomF16Scale(Scales scales, std::mt19937& random) {
  const uint32_t sign = random() & 0x8000u;
  switch (scales) {
    case Scales::kUsual:
      return static_cast<uint16_t>(sign | Between(random, 5 << 10, (11 << 10) - 1));
    case Scales::kZero:
      return static_cast<uint16_t>(sign);
    case Scales::kLeast:  // subnormal
      return static_cast<uint16_t>(sign | Between(random, 1, 0x3ff));
    case Scales::kGreatest:
      return static_cast<uint16_t>(sign | 0x7bff);
    default:
      return static_cast<uint16_t>(sign | Between(random, 0, 0x7bff));
  }
}

uint16_t RandomBf16Scale(Scales scales, std::mt19937& random) {
  const uint32_t sign = random() & 0x8000u;
  switch (scales) {
    case Scales::kUsual:
      return static_cast<uint16_t>(sign | Between(random, 120 << 7, (127 << 7) - 1));
    case Scales::kZero:
      return static_cast<uint16_t>(sign);
    case Scales::kLeast:  // subnormal
      return static_cast<uint16_t>(sign | Between(random, 1, 0x7f));
    case Scales::kGreatest:
      return static_cast<uint16_t>(sign | Between(random, 217 << 7, 227 << 7));
    default:
      return static_cast<uint16_t>(sign | Between(random, 27 << 7, 227 << 7));
  }
}

uint8_t RandomE8M0Scale(Scales scales, std::mt19937& random) {
  switch (scales) {
    case Scales::kUsual:
      return static_cast<uint8_t>(Between(random, 118, 126));
    case Scales::kZero:  // has none; 2^-127
      return 0;
    case Scales::kLeast:
      return static_cast<uint8_t>(Between(random, 0, 3));
    case Scales::kGreatest:
      return static_cast<uint8_t>(Between(random, 217, 227));
    default:
      return static_cast<uint8_t>(Between(random, 27, 227));
  }
}

void Store16(uint8_t* p, uint16_t bits) { std::memcpy(p, &bits, sizeof bits); }

// Where a block of a row has its F16 scale, or BF16 scale.
int64_t ScaleOffset(DType type) { return type == DType::kQ6K ? 208 : 0; }

// Random codes, and 6-bit and 8-bit scales, of all values; the scale of the block as `scales` says.
void RandomBlock(DType type, Scales scales, std::mt19937& random, uint8_t* block) {
  for (int64_t i = 0; i < FormatOf(type).row_block_bytes; ++i) block[i] = static_cast<uint8_t>(random());
  switch (type) {
    case DType::kMXFP4:
      block[0] = RandomE8M0Scale(scales, random);
      return;
    case DType::kI4G32:
    case DType::kI4G128:
      return Store16(block, RandomBf16Scale(scales, random));
    case DType::kI4Z32:
    case DType::kI4Z128: {  // both types of scales; zero points of all values
      const float scale =
          random() % 2 == 0 ? FromF16(RandomF16Scale(scales, random)) : FromBf16(RandomBf16Scale(scales, random));
      const uint32_t word = ScaleAndZero(scale, random() % 16);
      std::memcpy(block, &word, sizeof word);
      return;
    }
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      Store16(block + 2, RandomF16Scale(scales, random));
      [[fallthrough]];
    default:
      Store16(block + ScaleOffset(type), RandomF16Scale(scales, random));
  }
}

float ScaleOfI4Z(const uint8_t* block) {
  uint32_t word;
  std::memcpy(&word, block, sizeof word);
  return std::bit_cast<float>(word & kScaleOfI4Z);
}

// The greatest scale and min that a sub-block of this block of a row can have.
double GreatestFactor(DType type, const uint8_t* block) {
  uint16_t bits;
  std::memcpy(&bits, block + ScaleOffset(type), sizeof bits);
  switch (type) {
    case DType::kMXFP4:
      return std::ldexp(1.0, block[0] - 127);
    case DType::kI4G32:
    case DType::kI4G128:
      return std::fabs(FromBf16(bits));
    case DType::kI4Z32:
    case DType::kI4Z128:
      return 15.0 * std::fabs(ScaleOfI4Z(block));
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K: {
      uint16_t min;
      std::memcpy(&min, block + 2, sizeof min);
      return (HasF16Scales(type) ? 1.0 : 63.0) * std::max(std::fabs(FromF16(bits)), std::fabs(FromF16(min)));
    }
    case DType::kQ6K:
      return 128.0 * std::fabs(FromF16(bits));
    default:
      return std::fabs(FromF16(bits));
  }
}

// Weights of a row without their mins, and the mins. Both are exact: only their difference is rounded to F32, and only
// scales with many exponents make a product overflow.
void ExactWeights(DType type, std::vector<uint8_t> row, int64_t cols, double* scaled, double* mins) {
  const BlockFormat format = FormatOf(type);
  std::vector<float> weights(static_cast<size_t>(cols));
  const auto dequantize_without = [&](int64_t offset) {
    std::vector<uint8_t> without = row;
    for (size_t i = 0; i < row.size(); i += static_cast<size_t>(format.row_block_bytes))
      Store16(&without[i + static_cast<size_t>(offset)], 0);
    DequantizeRow(type, without.data(), cols, weights.data());
  };
  std::fill_n(mins, cols, 0.0);
  if (HasZeroPoints(type)) {
    for (int64_t i = 0; i < cols; ++i) {
      const uint8_t* block = &row[static_cast<size_t>(i / format.row_block * format.row_block_bytes)];
      const int64_t in_block = i % format.row_block;
      const double scale = ScaleOfI4Z(block);
      scaled[i] = scale * (block[4 + in_block / 2] >> (in_block % 2 * 4) & 15);
      mins[i] = scale * (block[0] & 15);
    }
    return;
  }
  if (format.has_mins) {
    dequantize_without(0);
    for (int64_t i = 0; i < cols; ++i) mins[i] = -double{weights[static_cast<size_t>(i)]};
    dequantize_without(2);
    std::copy(weights.begin(), weights.end(), scaled);
    return;
  }
  const bool wide = type == DType::kMXFP4 || type == DType::kI4G32 || type == DType::kI4G128;
  std::vector<double> factors(static_cast<size_t>(cols), 1.0);
  for (int64_t i = 0; wide && i < cols; ++i) {
    uint8_t* block = &row[static_cast<size_t>(i / format.row_block * format.row_block_bytes)];
    if (i % format.row_block == 0) {
      uint16_t bits;
      std::memcpy(&bits, block, sizeof bits);
      factors[static_cast<size_t>(i)] = type == DType::kMXFP4 ? std::ldexp(1.0, block[0] - 127) : FromBf16(bits);
      if (type == DType::kMXFP4) {
        block[0] = 127;
      } else {
        Store16(block, ToBf16(1.0f));
      }
    } else {
      factors[static_cast<size_t>(i)] = factors[static_cast<size_t>(i - 1)];
    }
  }
  DequantizeRow(type, row.data(), cols, weights.data());
  for (int64_t i = 0; i < cols; ++i) scaled[i] = weights[static_cast<size_t>(i)] * factors[static_cast<size_t>(i)];
}

// Rows as published, packed for the kernels, and exact.
struct FormatMatrix {
  std::vector<uint8_t> row_major;
  std::vector<Line> packed;
  std::vector<double> scaled;   // [rows, cols]
  std::vector<double> mins;     // [rows, cols]
  std::vector<double> factors;  // [rows, cols]: the greatest factor of the block
  PackedMatrix view;

  int64_t row_bytes() const { return RowBytes(view.dtype, view.cols); }
  std::vector<uint8_t> row(int64_t r) const {
    const auto begin = row_major.begin() + r * row_bytes();
    return {begin, begin + row_bytes()};
  }
};

FormatMatrix Pack(DType type, int64_t rows, int64_t cols, std::vector<uint8_t> row_major) {
  FormatMatrix m;
  m.row_major = std::move(row_major);
  m.packed.resize(static_cast<size_t>(PackedBytes(type, rows, cols) / kPackedAlignment));
  m.view = {type, rows, cols, m.packed[0].bytes};
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    const uint8_t* src = m.row_major.data() + row * m.row_bytes();
    uint8_t* dst = m.packed[0].bytes + row / kRowGroup * PackedGroupBytes(type, cols);
    const int64_t count = std::min(kRowGroup, rows - row);
    if (type == DType::kF16) {  // packed as any 16 bits
      PackRows(DType::kBF16, src, m.row_bytes(), count, cols, dst);
    } else {
      PackBlockRows(type, src, m.row_bytes(), count, 0, cols, dst);
    }
  }
  const size_t size = static_cast<size_t>(rows * cols);
  m.scaled.resize(size), m.mins.resize(size), m.factors.resize(size);
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* src = m.row_major.data() + row * m.row_bytes();
    double* scaled = &m.scaled[static_cast<size_t>(row * cols)];
    double* factors = &m.factors[static_cast<size_t>(row * cols)];
    for (int64_t i = 0; i < cols; ++i) {
      if (type == DType::kF16) {
        uint16_t bits;
        std::memcpy(&bits, src + 2 * i, sizeof bits);
        scaled[i] = FromF16(bits);
        factors[i] = 1;
      } else {
        factors[i] = GreatestFactor(type, src + RowBytes(type, i / Unit(type) * Unit(type)));
      }
    }
    if (type != DType::kF16) ExactWeights(type, m.row(row), cols, scaled, &m.mins[static_cast<size_t>(row * cols)]);
  }
  return m;
}

FormatMatrix RandomMatrix(DType type, int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + cols));
  std::vector<uint8_t> row_major(static_cast<size_t>(rows * RowBytes(type, cols)));
  uint8_t* p = row_major.data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; col += Unit(type)) {
      if (type == DType::kF16) {
        Store16(p, RandomF16Scale(ScalesOfRow(row), random));
        p += 2;
      } else {
        RandomBlock(type, ScalesOfRow(row), random, p);
        p += FormatOf(type).row_block_bytes;
      }
    }
  }
  return Pack(type, rows, cols, std::move(row_major));
}

struct Truth {
  double y = 0;
  double tolerance = 0;
};

// The tolerance of one output. Codes, scales and inputs are exact, and so are products of code and input. A chain of n
// inputs rounds n times, and so does the sum of inputs that a min multiplies. Each of S sub-blocks adds one fused
// multiply-add, two with mins:
//     |y - truth| <= Gamma(n + S or 2 S) * (sum |scale * code * x| + sum |min * x|).
// What rounds at the least denormal, 2^-149, loses no more than that, once for each input, times the factor, and once
// for each fused multiply-add. Tables that flush treat denormal operands as zero and flush denormal results. They lose
// at most the smallest normal F32: once for each input, times the greatest code (F16: weight), and for each sum, both
// times the factor; and once for each fused multiply-add. A denormal scale loses its whole sub-block.
Truth ComputeTruth(const FormatMatrix& m, const uint16_t* x, int64_t row, bool flushes) {
  const DType type = m.view.dtype;
  const int64_t cols = m.view.cols, chain = ChainInputs(type);
  const bool has_mins = IsBlockFormat(type) && FormatOf(type).has_mins;
  const double least = flushes ? kSmallestNormal : 0x1p-149;
  const double for_input = flushes ? (type == DType::kF16 ? 65504 : 128) + 3 : 1;
  const auto fmas = static_cast<double>(CeilDiv(cols, chain) * (has_mins ? 2 : 1));
  Truth truth;
  double magnitude = 0, lost = fmas * least;
  for (int64_t i = 0; i < cols; ++i) {
    const size_t at = static_cast<size_t>(row * cols + i);
    const double input = FromBf16(x[i]), term = m.scaled[at] * input, min = m.mins[at] * input;
    truth.y += term - min;
    magnitude += std::fabs(term) + std::fabs(min);
    lost += for_input * least * m.factors[at];
    if (flushes && m.factors[at] < kSmallestNormal) lost += std::fabs(term);
  }
  truth.tolerance = Gamma(static_cast<double>(std::min(cols, chain)) + fmas) * magnitude + lost;
  return truth;
}

class LinearFormatsTest : public KernelOrModelTest {
 protected:
  // vdpbf16ps and tiles flush denormals.
  bool flushes() const { return kernels_->isa.starts_with("avx512_bf16") || kernels_->isa.starts_with("amx"); }
  void CheckAgainstTruth(const FormatMatrix& m, const Activations& a, const std::vector<float>& y, int64_t tokens);
  void CheckShape(DType type, int64_t rows, int64_t cols);
};
MOE_INSTANTIATE_PER_ISA(LinearFormatsTest);
MOE_INSTANTIATE_ON_MODEL(LinearFormatsTest);

void LinearFormatsTest::CheckAgainstTruth(const FormatMatrix& m, const Activations& a, const std::vector<float>& y,
                                          int64_t tokens) {
  const int64_t rows = m.view.rows;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t row = 0; row < rows; ++row) {
      const Truth truth = ComputeTruth(m, a.x.data() + t * a.stride, row, flushes());
      ASSERT_NEAR(y[static_cast<size_t>(t * (rows + 3) + row)], truth.y, truth.tolerance)
          << "token " << t << " row " << row;
    }
    for (int64_t extra = rows; extra < rows + 3; ++extra) {
      ASSERT_EQ(y[static_cast<size_t>(t * (rows + 3) + extra)], kUntouched) << "written past the last row";
    }
  }
}

constexpr int64_t kMaxTokens = 17;

void LinearFormatsTest::CheckShape(DType type, int64_t rows, int64_t cols) {
  SCOPED_TRACE(testing::Message() << DTypeName(type) << " [" << rows << ", " << cols << "]");
  const FormatMatrix m = RandomMatrix(type, rows, cols);
  const Activations a = RandomActivations(kMaxTokens, cols);
  const std::vector<float> batch = RunLinear(*kernels_, m.view, a, kMaxTokens, 0, rows);
  ASSERT_NO_FATAL_FAILURE(CheckAgainstTruth(m, a, batch, kMaxTokens));

  for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 16}) {
    const std::vector<float> few = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
    ASSERT_TRUE(SameBits(few.data(), batch.data(), tokens * (rows + 3))) << tokens << " tokens: other bits";
  }
  PackedMatrix cached = m.view;
  cached.cached = true;
  const std::vector<float> from_cache = RunLinear(*kernels_, cached, a, 1, 0, rows);
  ASSERT_TRUE(SameBits(from_cache.data(), batch.data(), rows + 3)) << "the hint changes bits";
  for (int64_t begin = 0; begin < rows; begin += kRowGroup) {
    const int64_t end = std::min(rows, begin + kRowGroup);
    const std::vector<float> part = RunLinear(*kernels_, m.view, a, 1, begin, end);
    ASSERT_TRUE(SameBits(&part[static_cast<size_t>(begin)], &batch[static_cast<size_t>(begin)], end - begin));
    ASSERT_EQ(std::count(part.begin(), part.end(), kUntouched), rows + 3 - (end - begin));
  }
}

std::vector<int64_t> Columns(DType type) {
  if (type == DType::kF16) return {1, 2, 3, 4, 127, 128, 130, 1000};
  const int64_t unit = Unit(type);
  return {unit, 2 * unit, 3 * unit, 5 * unit};  // parts of a packed block, one, and more than one
}

TEST_P(LinearFormatsTest, AgainstDoubleAndSameBitsForAnyBatchAndSplit) {
  for (DType type : kTypes) {
    for (int64_t rows : {1, 15, 64, 65, 130}) {
      for (int64_t cols : Columns(type)) ASSERT_NO_FATAL_FAILURE(CheckShape(type, rows, cols));
    }
    // Columns of published models: 11 x 128, and 22.5 x 128 where blocks of 32 allow it.
    const int64_t cols = Unit(type) == 256 ? 2816 : Unit(type) == 128 ? 1408 : 2880;
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 72, cols));
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 400, 2 * Unit(type)));  // more groups than are read side by side
  }
}

// More tokens than any kernel keeps totals for.
TEST_P(LinearFormatsTest, ManyTokensHaveTheBitsOfSingleOnes) {
  constexpr int64_t kTokens = 300;
  for (DType type : kTypes) {
    const int64_t rows = 65, cols = std::max<int64_t>(3 * Unit(type), 416);
    const FormatMatrix m = RandomMatrix(type, rows, cols / Unit(type) * Unit(type));
    const Activations a = RandomActivations(kTokens, m.view.cols);
    std::vector<float> singles;
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<float> one(static_cast<size_t>(rows));
      kernels_->linear(m.view, a.x.data() + t * a.stride, a.stride, 1, one.data(), rows, 0, rows);
      singles.insert(singles.end(), one.begin(), one.end());
    }
    for (int64_t tokens : {64, 65, 264, 265, 300}) {
      const std::vector<float> batch = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
      for (int64_t t = 0; t < tokens; ++t) {
        ASSERT_TRUE(
            SameBits(&singles[static_cast<size_t>(t * rows)], &batch[static_cast<size_t>(t * (rows + 3))], rows))
            << DTypeName(type) << ", token " << t << " of " << tokens;
      }
    }
  }
}

// Token c is 1 in column c and 0 elsewhere, so each output is one weight. With mins it is rounded once, as published.
// Tables that flush denormals may lose a scale.
TEST_P(LinearFormatsTest, EveryWeightIsExact) {
  // The greatest four-bit code times a denormal scale.
  const double flushed = flushes() ? 8 * kSmallestNormal : 0.0;
  for (DType type : kTypes) {
    const int64_t rows = 72,
                  cols = type == DType::kF16 ? 130 : std::max<int64_t>(Unit(type), 160 / Unit(type) * Unit(type));
    const FormatMatrix m = RandomMatrix(type, rows, cols);
    Activations a{cols, std::vector<uint16_t>(static_cast<size_t>(cols * cols), 0)};
    for (int64_t c = 0; c < cols; ++c) a.x[static_cast<size_t>(c * cols + c)] = ToBf16(1.0f);
    const std::vector<float> all = RunLinear(*kernels_, m.view, a, cols, 0, rows);
    for (int64_t c = 0; c < cols; ++c) {
      std::vector<float> one(static_cast<size_t>(rows));
      kernels_->linear(m.view, &a.x[static_cast<size_t>(c * cols)], cols, 1, one.data(), rows, 0, rows);
      for (int64_t row = 0; row < rows; ++row) {
        const size_t at = static_cast<size_t>(row * cols + c);
        const float weight = static_cast<float>(m.scaled[at] - m.mins[at]);
        if (IsBlockFormat(type)) {
          std::vector<float> published(static_cast<size_t>(cols));
          DequantizeRow(type, m.row(row).data(), cols, published.data());
          ASSERT_EQ(weight, published[static_cast<size_t>(c)]);
        }
        const float got = all[static_cast<size_t>(c * (rows + 3) + row)];
        ASSERT_TRUE(SameBits(&got, &one[static_cast<size_t>(row)], 1));
        ASSERT_NEAR(got, weight, std::fabs(weight) < flushed ? flushed : 0.0)
            << DTypeName(type) << " row " << row << " column " << c;
      }
    }
  }
}

// All exponents of E8M0 but NaN's, and all finite ones of BF16: row r has exponent r. Activations are such that no
// result overflows.
TEST_P(LinearFormatsTest, EveryExponentOfTheScale) {
  for (DType type : {DType::kMXFP4, DType::kI4G32, DType::kI4G128, DType::kI4Z32, DType::kI4Z128}) {
    const int64_t cols = 2 * Unit(type);
    for (const auto& [size, rows] : {std::pair<float, int64_t>(0x1p-14f, 255), {0x1p70f, 160}}) {
      std::mt19937 random(5);
      std::vector<uint8_t> row_major(static_cast<size_t>(rows * RowBytes(type, cols)));
      for (int64_t block = 0; block < 2 * rows; ++block) {
        uint8_t* p = &row_major[static_cast<size_t>(block * FormatOf(type).row_block_bytes)];
        RandomBlock(type, Scales::kUsual, random, p);
        const auto exponent = static_cast<uint32_t>(block / 2);
        if (type == DType::kMXFP4) {
          p[0] = static_cast<uint8_t>(exponent);
        } else if (HasZeroPoints(type)) {
          const float scale = std::bit_cast<float>((static_cast<uint32_t>(random()) & 0x807fe000u) | exponent << 23);
          const uint32_t word = ScaleAndZero(scale, random() % (exponent < 250 ? 16 : 2));  // their product is finite
          std::memcpy(p, &word, sizeof word);
        } else {
          Store16(p, static_cast<uint16_t>((random() & 0x807fu) | exponent << 7));
        }
      }
      const FormatMatrix m = Pack(type, rows, cols, std::move(row_major));
      const Activations a{cols, RandomBf16(7 * cols, 3, size)};
      for (int64_t tokens : {1, 7}) {
        SCOPED_TRACE(testing::Message() << DTypeName(type) << ", " << tokens << " tokens of " << size);
        const std::vector<float> y = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
        for (float value : y) ASSERT_TRUE(std::isfinite(value));
        ASSERT_NO_FATAL_FAILURE(CheckAgainstTruth(m, a, y, tokens));
      }
    }
  }
}

// Activations down to the denormals of BF16: flushed values stay within the derived bound, and every number of tokens
// flushes alike.
TEST_P(LinearFormatsTest, TinyActivations) {
  constexpr int64_t kTokens = 20;
  for (DType type : kTypes) {
    const FormatMatrix m = RandomMatrix(type, 64, 256);
    Activations a{256, {}};
    for (uint16_t i = 0; i < 256 * kTokens; ++i) {
      const auto magnitude = static_cast<uint16_t>(i % 2 == 0 ? i % 256 : i % 1024 * 3);
      a.x.push_back(static_cast<uint16_t>(i % 3 == 0 ? magnitude : 0x8000 | magnitude));
    }
    SCOPED_TRACE(DTypeName(type));
    const std::vector<float> batch = RunLinear(*kernels_, m.view, a, kTokens, 0, 64);
    ASSERT_NO_FATAL_FAILURE(CheckAgainstTruth(m, a, batch, kTokens));
    for (int64_t tokens : {1, 2, 4}) {
      const std::vector<float> few = RunLinear(*kernels_, m.view, a, tokens, 0, 64);
      ASSERT_TRUE(SameBits(few.data(), batch.data(), tokens * 67)) << tokens << " tokens: other bits";
    }
  }
}

TEST_P(LinearFormatsTest, NanActivationsReachTheOutput) {
  for (DType type : kTypes) {
    const FormatMatrix m = RandomMatrix(type, 16, 256);
    for (int64_t tokens : {1, 8}) {
      for (uint16_t bits : {kBf16Nan, ToBf16(std::numeric_limits<float>::infinity())}) {
        Activations a = RandomActivations(tokens, 256);
        a.x[77] = bits;
        const std::vector<float> y = RunLinear(*kernels_, m.view, a, tokens, 0, 16);
        for (int64_t row = 0; row < 16; ++row) {
          const double weight = m.scaled[static_cast<size_t>(row * 256 + 77)];
          if (bits != kBf16Nan && std::fabs(weight) < kSmallestNormal) continue;  // infinity times nothing
          ASSERT_FALSE(std::isfinite(y[static_cast<size_t>(row)])) << DTypeName(type) << " row " << row;
        }
        for (int64_t t = 1; t < tokens; ++t) {
          for (int64_t row = 0; row < 16; ++row) ASSERT_TRUE(std::isfinite(y[static_cast<size_t>(t * 19 + row)]));
        }
      }
    }
  }
}

TEST_P(LinearFormatsTest, NoTokensWriteNothing) {
  for (DType type : kTypes) {
    const FormatMatrix m = RandomMatrix(type, 64, 256);
    float y = kUntouched;
    kernels_->linear(m.view, nullptr, 256, 0, &y, 64, 0, 64);
    EXPECT_EQ(y, kUntouched);
  }
}

// A copy that ends where a page begins that nobody may read.
class GuardedCopy {
 public:
  GuardedCopy(const void* data, size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (bytes + page - 1) / page * page;
    size_ = readable + page;
    void* map = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return;
    map_ = static_cast<uint8_t*>(map);
    mprotect(map_ + readable, page, PROT_NONE);
    data_ = map_ + readable - bytes;
    std::memcpy(data_, data, bytes);
  }
  ~GuardedCopy() {
    if (map_ != nullptr) munmap(map_, size_);
  }
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;

  uint8_t* data() const { return data_; }

 private:
  size_t size_ = 0;
  uint8_t* map_ = nullptr;
  uint8_t* data_ = nullptr;
};

TEST_P(LinearFormatsTest, ReadsNothingPastInputsAndWeights) {
  for (DType type : kTypes) {
    for (int64_t cols : Columns(type)) {
      const FormatMatrix m = RandomMatrix(type, 65, cols);
      const GuardedCopy weights(m.view.data, static_cast<size_t>(PackedBytes(type, 65, cols)));
      PackedMatrix guarded = m.view;
      guarded.data = weights.data();
      for (int64_t tokens : {1, 2, 7, 17, 40}) {
        const Activations a = RandomActivations(tokens, cols);
        const GuardedCopy x(a.x.data(), a.x.size() * sizeof(uint16_t));
        ASSERT_TRUE(weights.data() != nullptr && x.data() != nullptr);
        std::vector<float> y(static_cast<size_t>(tokens * 68), kUntouched);
        kernels_->linear(guarded, reinterpret_cast<const uint16_t*>(x.data()), a.stride, tokens, y.data(), 68, 0, 65);
        EXPECT_EQ(y, RunLinear(*kernels_, m.view, a, tokens, 0, 65)) << DTypeName(type) << ", " << tokens << " tokens";
      }
    }
  }
}

TEST_P(LinearFormatsTest, LinearAddAddsTheSameSum) {
  for (DType type : kTypes) {
    for (int64_t cols : {Unit(type), 5 * Unit(type)}) {
      for (int64_t rows : {1, 65, 128}) {
        const FormatMatrix m = RandomMatrix(type, rows, cols);
        const Activations a = RandomActivations(35, cols);
        for (int64_t tokens : {1, 2, 6, 16, 35}) {
          const std::vector<float> sum = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
          const std::vector<float> before = RandomFloats(static_cast<int64_t>(sum.size()), 9);
          std::vector<float> y = before;
          DirtyStack();
          kernels_->linear_add(m.view, a.x.data(), a.stride, tokens, y.data(), rows + 3, 0, rows);
          for (size_t i = 0; i < y.size(); ++i) {
            const bool outside = static_cast<int64_t>(i) % (rows + 3) >= rows;
            ASSERT_EQ(y[i], outside ? before[i] : before[i] + sum[i])
                << DTypeName(type) << " [" << rows << ", " << cols << "], " << tokens << " tokens, " << i;
          }
        }
      }
    }
  }
}

// The model of the tiles behaves as the tiles.
TEST(AmxLinearFormats, HaveTheBitsOfTheModel) {
  const CpuKernels* amx = FindKernels("amx");
  if (amx == nullptr) GTEST_SKIP() << "this CPU lacks the instructions of amx";
  for (DType type : kTypes) {
    for (int64_t cols : {256, 768}) {
      const FormatMatrix m = RandomMatrix(type, 129, cols);
      for (int64_t tokens : {1, 2, 5, 16, 33, 70}) {
        const Activations a = RandomActivations(tokens, cols);
        const std::vector<float> y = RunLinear(*amx, m.view, a, tokens, 0, 129);
        const std::vector<float> model = RunLinear(*AmxOnModel(), m.view, a, tokens, 0, 129);
        ASSERT_TRUE(SameBits(y.data(), model.data(), static_cast<int64_t>(y.size())))
            << DTypeName(type) << " [129, " << cols << "], " << tokens << " tokens";
      }
    }
  }
}

}  // namespace
}  // namespace moestro
