// Formats of blocks times inputs coded by spans. Sums are exact and the F32 operations around them have one order, so
// every table has the bits of the model here. Rounded inputs are the only approximation, and it is bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/tensor/block_rows.h"
#include "tests/common/kernels/amx/model_test.h"
#include "tests/common/kernels/linear_test.h"

namespace moestro {
namespace {

constexpr DType kTypes[] = {DType::kQ8_0,   DType::kQ4_0,  DType::kQ5_0,   DType::kQ4K,   DType::kQ5K,
                            DType::kQ6K,    DType::kI4G32, DType::kI4G128, DType::kMXFP4, DType::kI4Z32,
                            DType::kI4Z128, DType::kQ4_1,  DType::kQ5_1};

void Store16(uint8_t* p, uint16_t bits) { std::memcpy(p, &bits, sizeof bits); }

// Where a block of a row has its codes, and the code that stands for one.
struct CodesOfOnes {
  int64_t begin, end;
  uint8_t byte;
};
CodesOfOnes OnesOf(DType type) {
  const int64_t bytes = FormatOf(type).row_block_bytes;
  switch (type) {
    case DType::kQ8_0:
      return {2, bytes, 1};
    case DType::kQ4_0:
    case DType::kI4G32:
    case DType::kI4G128:
      return {2, bytes, 0x99};
    case DType::kI4Z32:
    case DType::kI4Z128:
    case DType::kQ4_1:
      return {4, bytes, 0x11};
    case DType::kQ5_1:
      return {8, bytes, 0x11};
    case DType::kQ5_0:
      return {6, bytes, 0x11};
    case DType::kQ4K:
      return {16, bytes, 0x11};
    case DType::kQ5K:
      return {48, bytes, 0x11};
    case DType::kQ6K:
      return {0, 128, 0x11};
    default:
      return {1, bytes, 0x22};
  }
}
// Upper bits of codes that lie apart.
CodesOfOnes UpperBitsOf(DType type) {
  switch (type) {
    case DType::kQ5_0:
      return {2, 6, 0xff};
    case DType::kQ5_1:
      return {4, 8, 0};
    case DType::kQ5K:
      return {16, 48, 0};
    case DType::kQ6K:
      return {128, 192, 0xaa};
    default:
      return {0, 0, 0};
  }
}

void SetCodes(uint8_t* block, const CodesOfOnes& codes) {
  for (int64_t i = codes.begin; i < codes.end; ++i) block[i] = codes.byte;
}

// I4Z: its zero point stays.
void SetScale(DType type, uint8_t* block, float scale, float min) {
  switch (type) {
    case DType::kI4Z32:
    case DType::kI4Z128: {
      uint32_t word;
      std::memcpy(&word, block, sizeof word);
      word = (std::bit_cast<uint32_t>(scale) & kScaleOfI4Z) | (word & kZeroOfI4Z);
      std::memcpy(block, &word, sizeof word);
      return;
    }
    case DType::kMXFP4:
      block[0] = static_cast<uint8_t>(std::ilogb(scale) + 127);
      return;
    case DType::kI4G32:
    case DType::kI4G128:
      return Store16(block, ToBf16(scale));
    case DType::kQ6K:
      return Store16(block + 208, ToF16(scale));
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      Store16(block + 2, ToF16(min));
      [[fallthrough]];
    default:
      return Store16(block, ToF16(scale));
  }
}

// All sub-blocks' scales 1, their mins 0.
void SetUnitScales(DType type, uint8_t* block) {
  SetScale(type, block, 1, 0);
  if (HasZeroPoints(type)) {
    block[0] = 0;
    return;
  }
  if (type == DType::kQ6K) std::fill_n(block + 192, 16, uint8_t{1});
  if (FormatOf(type).has_mins && !HasF16Scales(type)) {
    std::fill_n(block + 4, 12, uint8_t{0});
    std::fill_n(block + 4, 4, uint8_t{1});
    std::fill_n(block + 12, 4, uint8_t{1});
  }
}

enum class Codes { kAny, kLeast, kGreatest };

// Weights as factors: scale * code - min. The code of MXFP4 is twice E2M1, and its scale half.
struct CodedMatrix {
  std::vector<Line> packed;
  PackedMatrix view;
  std::vector<int32_t> codes;  // [rows, cols]
  std::vector<float> scales, mins;

  size_t at(int64_t row, int64_t col) const { return static_cast<size_t>(row * view.cols + col); }
};

CodedMatrix RandomMatrix(DType type, int64_t rows, int64_t cols, Codes kind = Codes::kAny) {
  const BlockFormat format = FormatOf(type);
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + cols));
  std::uniform_real_distribution<float> scale_of(0.01f, 0.1f);
  std::vector<uint8_t> row_major(static_cast<size_t>(rows * RowBytes(type, cols)));
  for (auto& byte : row_major) byte = static_cast<uint8_t>(random());
  CodedMatrix m;
  std::vector<uint8_t> of_codes, of_scales, of_mins;
  for (size_t i = 0; i < row_major.size(); i += static_cast<size_t>(format.row_block_bytes)) {
    uint8_t* block = &row_major[i];
    if (kind != Codes::kAny) {
      CodesOfOnes all = OnesOf(type), upper = UpperBitsOf(type);
      all.byte = upper.byte = kind == Codes::kLeast ? 0 : 0xff;
      if (type == DType::kQ8_0) all.byte = kind == Codes::kLeast ? 0x80 : 0x7f;
      if (type == DType::kMXFP4) all.byte = kind == Codes::kLeast ? 0xff : 0x77;
      SetCodes(block, all);
      SetCodes(block, upper);
    }
    SetScale(type, block, random() % 16 == 0 ? 0.0078125f : scale_of(random), scale_of(random));
    const auto copy = [&](std::vector<uint8_t>* to) {
      to->insert(to->end(), block, block + format.row_block_bytes);
      return to->data() + to->size() - format.row_block_bytes;
    };
    SetUnitScales(type, copy(&of_codes));
    uint8_t* scales = copy(&of_scales);
    SetCodes(scales, OnesOf(type));
    SetCodes(scales, UpperBitsOf(type));
    if (HasZeroPoints(type)) {
      SetCodes(copy(&of_mins), {4, format.row_block_bytes, 0});
      scales[0] &= 0xf0;
    } else if (format.has_mins) {
      uint8_t* mins = copy(&of_mins);
      std::memset(mins, 0, 2);
      std::memset(scales + 2, 0, 2);
    }
  }
  m.packed.resize(static_cast<size_t>(PackedBytes(type, rows, cols) / kPackedAlignment));
  m.view = {type, rows, cols, m.packed[0].bytes};
  const int64_t row_bytes = RowBytes(type, cols);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackBlockRows(type, row_major.data() + row * row_bytes, row_bytes, std::min(kRowGroup, rows - row), 0, cols,
                  m.packed[0].bytes + row / kRowGroup * PackedGroupBytes(type, cols));
  }
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    DequantizeRow(type, of_codes.data() + row * row_bytes, cols, values.data());
    for (const float value : values) m.codes.push_back(static_cast<int32_t>(type == DType::kMXFP4 ? 2 * value : value));
    DequantizeRow(type, of_scales.data() + row * row_bytes, cols, values.data());
    for (const float value : values) m.scales.push_back(value);
    if (format.has_mins) DequantizeRow(type, of_mins.data() + row * row_bytes, cols, values.data());
    for (const float value : values) m.mins.push_back(format.has_mins ? -value : 0.0f);
  }
  return m;
}

// A token's inputs as the contract codes them.
struct ModelInputs {
  std::vector<int32_t> codes;
  std::vector<float> scales;  // of spans
};
ModelInputs Encode(const uint16_t* x, int64_t cols) {
  ModelInputs coded;
  for (int64_t begin = 0; begin < cols; begin += kCodeSpan) {
    const int64_t end = std::min(cols, begin + kCodeSpan);
    float greatest = 0;
    for (int64_t i = begin; i < end; ++i) greatest = std::max(greatest, std::fabs(FromBf16(x[i])));
    const float scale = greatest / 127.0f;
    coded.scales.push_back(scale);
    for (int64_t i = begin; i < end; ++i) {
      coded.codes.push_back(scale == 0 ? 0 : static_cast<int32_t>(std::nearbyint(FromBf16(x[i]) / scale)));
    }
  }
  return coded;
}

float Model(const CodedMatrix& m, const ModelInputs& x, int64_t row) {
  const BlockFormat format = FormatOf(m.view.dtype);
  const float unit = m.view.dtype == DType::kMXFP4 ? 0.5f : 1.0f;
  float total = 0;
  for (int64_t begin = 0; begin < m.view.cols; begin += kCodeSpan) {
    float part = 0;
    for (int64_t j = begin; j < std::min(m.view.cols, begin + kCodeSpan); j += format.sub_block) {
      int64_t sum = 0, inputs = 0;
      for (int64_t i = j; i < j + format.sub_block; ++i) {
        const int64_t code = x.codes[static_cast<size_t>(i)];
        sum += m.codes[m.at(row, i)] * code;
        inputs += code;
      }
      part = std::fma(static_cast<float>(sum), m.scales[m.at(row, j)], part);
      if (format.has_mins) part = std::fma(static_cast<float>(-inputs), m.mins[m.at(row, j)], part);
    }
    total = std::fma(part, x.scales[static_cast<size_t>(begin / kCodeSpan)] * unit, total);
  }
  return total;
}

// An input differs from code * scale by at most half a scale, and 2^-16 of it for the rounded quotient. Sums of codes
// are exact in F32; each sub-block adds one rounding (two with mins), each span one.
void CheckBound(const CodedMatrix& m, const uint16_t* x, const ModelInputs& coded, int64_t row, float y) {
  const BlockFormat format = FormatOf(m.view.dtype);
  const double unit = m.view.dtype == DType::kMXFP4 ? 0.5 : 1;
  double truth = 0, of_inputs = 0, magnitude = 0;
  for (int64_t i = 0; i < m.view.cols; ++i) {
    const double scaled = double{m.scales[m.at(row, i)]} * m.codes[m.at(row, i)] * unit, min = m.mins[m.at(row, i)];
    const double scale = coded.scales[static_cast<size_t>(i / kCodeSpan)];
    truth += (scaled - min) * FromBf16(x[i]);
    of_inputs += std::fabs(scaled - min) * scale * (0.5 + 0x1p-16);
    magnitude += (std::fabs(scaled) + std::fabs(min)) * scale * std::abs(coded.codes[static_cast<size_t>(i)]);
  }
  const auto spans = static_cast<double>(CeilDiv(m.view.cols, kCodeSpan));
  const double roundings = static_cast<double>(kCodeSpan / format.sub_block * (format.has_mins ? 2 : 1)) + spans;
  ASSERT_NEAR(y, truth, of_inputs + Gamma(roundings) * magnitude);
}

// Coded rows, further apart than they need be, written elsewhere and copied.
struct CodedRows {
  int64_t stride;
  std::vector<Line> rows;
};
CodedRows EncodeRows(const CpuKernels& kernels, const Activations& a, int64_t tokens, int64_t cols) {
  const int64_t bytes = CodedRowBytes(InputCoding::kSpans, cols);
  CodedRows coded{bytes + kCodedRowAlignment, {}};
  coded.rows.resize(static_cast<size_t>(tokens * coded.stride / kCodedRowAlignment));
  std::vector<Line> row(static_cast<size_t>(bytes / kCodedRowAlignment));
  for (int64_t t = 0; t < tokens; ++t) {
    std::memset(row[0].bytes, 0xff, static_cast<size_t>(bytes));
    kernels.encode_inputs(InputCoding::kSpans, a.x.data() + t * a.stride, cols, row[0].bytes);
    std::memcpy(coded.rows[0].bytes + t * coded.stride, row[0].bytes, static_cast<size_t>(bytes));
  }
  return coded;
}

// Outputs [tokens, rows + 3]; the extra columns must stay untouched.
std::vector<float> Multiply(const CpuKernels& kernels, const PackedMatrix& w, const CodedRows& x, int64_t first,
                            int64_t tokens, int64_t row_begin, int64_t row_end, bool add = false) {
  std::vector<float> y(static_cast<size_t>(tokens * (w.rows + 3)), kUntouched);
  DirtyStack();
  kernels.linear_coded(w, x.rows[0].bytes + first * x.stride, x.stride, tokens, y.data() + row_begin, w.rows + 3,
                       row_begin, row_end, add);
  return y;
}

class LinearSpansTest : public KernelOrModelTest {
 protected:
  void CheckShape(DType type, int64_t rows, int64_t cols, int64_t tokens, Codes kind = Codes::kAny);
};
MOE_INSTANTIATE_PER_ISA(LinearSpansTest);
MOE_INSTANTIATE_ON_MODEL(LinearSpansTest);
MOE_INSTANTIATE_CODED(LinearSpansTest);

void LinearSpansTest::CheckShape(DType type, int64_t rows, int64_t cols, int64_t tokens, Codes kind) {
  SCOPED_TRACE(testing::Message() << DTypeName(type) << " [" << rows << ", " << cols << "] x " << tokens);
  const CodedMatrix m = RandomMatrix(type, rows, cols, kind);
  Activations a = RandomActivations(tokens, cols);
  if (kind != Codes::kAny) {
    for (int64_t t = 0; t < tokens; ++t)
      std::fill_n(&a.x[static_cast<size_t>(t * a.stride)], cols, ToBf16(t % 2 ? -1.5f : 1.5f));
  }
  const CodedRows coded = EncodeRows(*kernels_, a, tokens, cols);
  const std::vector<float> all = Multiply(*kernels_, m.view, coded, 0, tokens, 0, rows);
  for (int64_t t = 0; t < tokens; ++t) {
    const uint16_t* x = a.x.data() + t * a.stride;
    const ModelInputs model = Encode(x, cols);
    const float* y = &all[static_cast<size_t>(t * (rows + 3))];
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(y[row], Model(m, model, row)) << "token " << t << " row " << row;
      ASSERT_NO_FATAL_FAILURE(CheckBound(m, x, model, row, y[row])) << "token " << t << " row " << row;
    }
    ASSERT_EQ(std::count(y + rows, y + rows + 3, kUntouched), 3);
    // Alone, and each group of rows alone.
    const int64_t begin = t * kRowGroup % PaddedRows(rows), end = std::min(rows, begin + kRowGroup);
    const std::vector<float> one = Multiply(*kernels_, m.view, coded, t, 1, begin, end);
    ASSERT_TRUE(SameBits(&one[static_cast<size_t>(begin)], y + begin, end - begin)) << "token " << t;
    ASSERT_EQ(std::count(one.begin(), one.end(), kUntouched), rows + 3 - (end - begin));
  }
}

// Parts of a packed block, one, more than one, and columns of published models.
std::vector<int64_t> Columns(DType type) {
  const int64_t unit = FormatOf(type).row_block;
  return {unit, 2 * unit, 3 * unit, 5 * unit, unit == 256 ? 1536 : unit == 128 ? 1408 : 1440};
}

TEST_P(LinearSpansTest, HasTheBitsOfTheModel) {
  for (const DType type : kTypes) {
    for (const int64_t rows : {1, 64, 65, 130}) {
      for (const int64_t cols : Columns(type)) ASSERT_NO_FATAL_FAILURE(CheckShape(type, rows, cols, 7));
    }
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 8, 17}) {
      ASSERT_NO_FATAL_FAILURE(CheckShape(type, 72, Columns(type)[2], tokens));
    }
  }
}

// More tokens and rows than any kernel takes at once, and tiles of tokens that are full or not.
TEST_P(LinearSpansTest, ManyTokensAndRows) {
  for (const DType type : kTypes) {
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 130, 5 * FormatOf(type).row_block, 64));
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 128, 5 * FormatOf(type).row_block, 71));
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 330, 2 * FormatOf(type).row_block, 20));
    ASSERT_NO_FATAL_FAILURE(CheckShape(type, 65, 2 * FormatOf(type).row_block, 270));
  }
}

// The greatest sums there are.
TEST_P(LinearSpansTest, GreatestCodes) {
  for (const DType type : kTypes) {
    for (const Codes codes : {Codes::kLeast, Codes::kGreatest}) {
      for (const int64_t tokens : {6, 64}) ASSERT_NO_FATAL_FAILURE(CheckShape(type, 65, 512, tokens, codes));
    }
  }
}

TEST_P(LinearSpansTest, AddsToTheOutput) {
  for (const DType type : kTypes) {
    const CodedMatrix m = RandomMatrix(type, 72, 512);
    const CodedRows coded = EncodeRows(*kernels_, RandomActivations(70, 512), 70, 512);
    for (const int64_t tokens : {1, 6, 70}) {
      const std::vector<float> product = Multiply(*kernels_, m.view, coded, 0, tokens, 0, 72);
      const std::vector<float> sum = Multiply(*kernels_, m.view, coded, 0, tokens, 0, 72, /*add=*/true);
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_EQ(sum[i], i % 75 < 72 ? kUntouched + product[i] : kUntouched) << i;
      }
    }
  }
}

TEST_P(LinearSpansTest, InfinityAndNanReachOnlyTheirToken) {
  for (const DType type : kTypes) {
    const CodedMatrix m = RandomMatrix(type, 72, 512);
    for (const int64_t tokens : {3, 9, 66}) {
      Activations a = RandomActivations(tokens, 512);
      a.x[3] = 0x7f80;  // infinity
      a.x[static_cast<size_t>(a.stride) + 511] = kBf16Nan;
      const std::vector<float> y = Multiply(*kernels_, m.view, EncodeRows(*kernels_, a, tokens, 512), 0, tokens, 0, 72);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < 72; ++row) {
          ASSERT_EQ(std::isfinite(y[static_cast<size_t>(t * 75 + row)]), t > 1) << DTypeName(type) << ", token " << t;
        }
      }
    }
  }
}

TEST_P(LinearSpansTest, SmallestInputsHaveCodesAndZerosNone) {
  for (const DType type : kTypes) {
    const CodedMatrix m = RandomMatrix(type, 8, 512, Codes::kGreatest);
    Activations a{512, std::vector<uint16_t>(1024, 0)};
    std::fill_n(a.x.begin(), 512, uint16_t{1});  // 2^-133, subnormal
    const CodedRows coded = EncodeRows(*kernels_, a, 2, 512);
    const std::vector<float> y = Multiply(*kernels_, m.view, coded, 0, 2, 0, 8);
    for (int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(y[static_cast<size_t>(row)], Model(m, Encode(a.x.data(), 512), row)) << DTypeName(type);
      EXPECT_EQ(y[static_cast<size_t>(11 + row)], 0) << DTypeName(type);
    }
    EXPECT_TRUE(std::any_of(y.begin(), y.begin() + 8, [](float value) { return value != 0; })) << DTypeName(type);
  }
}

}  // namespace
}  // namespace moestro
