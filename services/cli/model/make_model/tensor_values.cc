#include "services/cli/model/make_model/tensor_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/random_bits.h"
#include "common/tensor/fp8_codes.h"
#include "services/cli/model/make_model/four_bits.h"

namespace moestro::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are written as they are in memory");

constexpr int64_t kCodesPerWord = 4;  // sixteen bits each

uint8_t CodeFrom(const MagnitudeTable& table, uint64_t word, int64_t lane) {
  return Fp8Code(table, static_cast<uint16_t>(word >> (16 * lane)));
}

void FillCodes(const RandomWords& words, int64_t begin, int64_t end, uint8_t* out) {
  const MagnitudeTable& table = Fp8Magnitudes();
  int64_t i = begin;
  for (; i < end && i % kCodesPerWord != 0; ++i) *out++ = CodeFrom(table, words[i / kCodesPerWord], i % kCodesPerWord);
  for (; i + kCodesPerWord <= end; i += kCodesPerWord) {
    const uint64_t word = words[i / kCodesPerWord];
    for (int64_t lane = 0; lane < kCodesPerWord; ++lane) *out++ = CodeFrom(table, word, lane);
  }
  for (; i < end; ++i) *out++ = CodeFrom(table, words[i / kCodesPerWord], i % kCodesPerWord);
}

// The scale of one block. 24 random bits spread the factor over [0.5, 1.5), so scales are not powers of two.
float BlockScale(const RandomWords& words, double deviation, int64_t block) {
  const uint64_t factor = (uint64_t{1} << 23) + (words[block] >> 40);
  return static_cast<float>(deviation / kCodeStdDev * static_cast<double>(factor) * 0x1p-24);
}

void FillScales(const RandomWords& words, double deviation, int64_t begin, int64_t end, std::byte* out) {
  for (int64_t i = begin; i < end; ++i, out += sizeof(float)) {
    const float scale = BlockScale(words, deviation, i);
    std::memcpy(out, &scale, sizeof scale);
  }
}

// The sum of four uniform 16-bit fields, centred: close to normal, and exact in integers.
float NormalValue(uint64_t word, double mean, double unit) {
  const int64_t sum =
      static_cast<int64_t>((word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48)) - 131070;
  return static_cast<float>(mean + static_cast<double>(sum) * unit);
}

void FillNormal(const PlannedTensor& tensor, const RandomWords& words, int64_t begin, int64_t end, std::byte* out) {
  // The sum's deviation is 65536 / sqrt(3).
  const double unit = tensor.deviation * std::sqrt(3.0) * 0x1p-16;
  for (int64_t i = begin; i < end; ++i) {
    const float value = NormalValue(words[i], tensor.mean, unit);
    if (tensor.dtype == DType::kF32) {
      std::memcpy(out, &value, sizeof value);
      out += sizeof value;
    } else {
      const uint16_t bits = ToBf16(value);
      std::memcpy(out, &bits, sizeof bits);
      out += sizeof bits;
    }
  }
}

const std::array<float, 256>& E4M3Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v;
    for (size_t code = 0; code < v.size(); ++code) v[code] = FromE4M3(static_cast<uint8_t>(code));
    return v;
  }();
  return values;
}

// A weight's FP8 form, times its block scales.
class DequantisedWeight {
 public:
  DequantisedWeight(const PlannedTensor& tensor, int64_t cols, uint64_t seed)
      : code_words_(seed, tensor.key),
        scale_words_(seed, absl::StrCat(tensor.key, "_scale_inv")),
        deviation_(tensor.deviation),
        cols_(cols) {}

  // Elements [begin, end), row by row.
  void Fill(int64_t begin, int64_t end, float* out) const {
    const std::array<float, 256>& values = E4M3Values();
    const int64_t blocks_per_row = CeilDiv(cols_, kScaleBlock);
    std::array<uint8_t, kScaleBlock> codes;
    for (int64_t i = begin; i < end;) {  // one row of one block at a time
      const int64_t row = i / cols_;
      const int64_t col = i % cols_;
      const int64_t count = std::min({kScaleBlock - col % kScaleBlock, cols_ - col, end - i});
      const int64_t block = row / kScaleBlock * blocks_per_row + col / kScaleBlock;
      const float scale = BlockScale(scale_words_, deviation_, block);
      FillCodes(code_words_, i, i + count, codes.data());
      for (int64_t k = 0; k < count; ++k) *out++ = values[codes[k]] * scale;
      i += count;
    }
  }

 private:
  RandomWords code_words_;
  RandomWords scale_words_;
  double deviation_;
  int64_t cols_;
};

void FillDequantised(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  const DequantisedWeight weight(tensor, tensor.shape.back(), seed);
  std::array<float, kScaleBlock> values;
  for (int64_t i = begin; i < end; i += kScaleBlock) {
    const int64_t count = std::min(kScaleBlock, end - i);
    weight.Fill(i, i + count, values.data());
    for (int64_t k = 0; k < count; ++k, out += sizeof(uint16_t)) {
      const uint16_t bits = ToBf16(values[k]);
      std::memcpy(out, &bits, sizeof bits);
    }
  }
}

// Elements of a tensor of which each group of weights has `per_group`: part(group of weights) returns these.
template <typename Part>
void FillGroups(const PlannedTensor& tensor, uint64_t seed, int64_t per_group, int64_t begin, int64_t end,
                std::byte* out, const Part& part) {
  const DequantisedWeight weight(tensor, tensor.cols, seed);
  std::array<float, kFourBitGroup> values;
  for (int64_t i = begin; i < end;) {
    const int64_t group = i / per_group, first = i % per_group;
    const int64_t count = std::min(per_group - first, end - i);
    weight.Fill(group * kFourBitGroup, (group + 1) * kFourBitGroup, values.data());
    const auto elements = part(values);
    const auto bytes = static_cast<size_t>(count) * sizeof(elements[0]);
    std::memcpy(out, elements.data() + first, bytes);
    out += bytes;
    i += count;
  }
}

// The group of 32 inputs that begins at input `begin` of a row.
Int4ZeroGroup ZeroGroupOf(const PlannedTensor& tensor, const DequantisedWeight& weight, int64_t row, int64_t begin) {
  std::array<float, kFourBitGroup> values;
  weight.Fill(row * tensor.cols + begin, row * tensor.cols + begin + kFourBitGroup, values.data());
  return RoundToInt4WithZero(values);
}

// A word of the zero points of eight rows, fewer at the end: element [rows / 8, group].
void FillInt4Zeros(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  const DequantisedWeight weight(tensor, tensor.cols, seed);
  const int64_t groups = tensor.cols / kFourBitGroup;
  for (int64_t i = begin; i < end; ++i, out += sizeof(uint32_t)) {
    const int64_t first = i / groups * 8, count = std::min<int64_t>(8, tensor.rows - first);
    uint32_t word = 0;
    for (int64_t r = 0; r < count; ++r) {
      word |= ZeroGroupOf(tensor, weight, first + r, i % groups * kFourBitGroup).zero << (4 * r);
    }
    std::memcpy(out, &word, sizeof word);
  }
}

// A tensor whose columns are outputs, `outputs` of them in an element, and of which a group of inputs has `lines` rows:
// part(groups of these outputs, line) returns an element. Neighbouring lines are of the same groups, so these are
// computed once.
template <typename Part>
void FillByInput(const PlannedTensor& tensor, uint64_t seed, int64_t outputs, int64_t lines, int64_t begin, int64_t end,
                 std::byte* out, const Part& part) {
  const DequantisedWeight weight(tensor, tensor.cols, seed);
  const int64_t width = tensor.rows / outputs, band = lines * width;
  std::array<Int4ZeroGroup, 8> groups;
  for (int64_t b = begin / band; b * band < end; ++b) {
    for (int64_t w = 0; w < width; ++w) {
      for (int64_t o = 0; o < outputs; ++o) {
        groups[static_cast<size_t>(o)] = ZeroGroupOf(tensor, weight, w * outputs + o, b * kFourBitGroup);
      }
      for (int64_t line = 0; line < lines; ++line) {
        const int64_t i = b * band + line * width + w;
        if (i < begin || i >= end) continue;
        const auto element = part(groups, line);
        std::memcpy(out + (i - begin) * int64_t{sizeof element}, &element, sizeof element);
      }
    }
  }
}

// The output that each nibble of a word of AWQ has, from the lowest up.
constexpr std::array<size_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

// part(group) of eight outputs as a word.
template <typename Part>
uint32_t AwqWord(const std::array<Int4ZeroGroup, 8>& groups, const Part& part) {
  uint32_t word = 0;
  for (size_t nibble = 0; nibble < 8; ++nibble) word |= part(groups[kAwqOrder[nibble]]) << (4 * nibble);
  return word;
}

void FillGroupOfInput(int64_t begin, int64_t end, std::byte* out) {
  for (int64_t i = begin; i < end; ++i, out += sizeof(int32_t)) {
    const auto group = static_cast<int32_t>(i / kFourBitGroup);
    std::memcpy(out, &group, sizeof group);
  }
}

// A row of a tensor in eight bits, whose type is that of the scale.
struct Int8Row {
  float scale = 1;
  std::vector<float> values;
};
Int8Row RowOf(const PlannedTensor& tensor, const DequantisedWeight& weight, int64_t row) {
  Int8Row result{.values = std::vector<float>(static_cast<size_t>(tensor.cols))};
  weight.Fill(row * tensor.cols, (row + 1) * tensor.cols, result.values.data());
  float largest = 0;
  for (const float value : result.values) largest = std::max(largest, std::fabs(value));
  result.scale = largest > 0 ? largest / 127 : 1;
  if (tensor.dtype == DType::kBF16) result.scale = FromBf16(ToBf16(result.scale));
  return result;
}

void FillInt8Codes(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  const DequantisedWeight weight(tensor, tensor.cols, seed);
  while (begin < end) {
    const int64_t row = begin / tensor.cols, row_end = std::min((row + 1) * tensor.cols, end);
    const Int8Row content = RowOf(tensor, weight, row);
    for (; begin < row_end; ++begin) {
      const float code = std::nearbyint(content.values[static_cast<size_t>(begin - row * tensor.cols)] / content.scale);
      *out++ = static_cast<std::byte>(static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f)));
    }
  }
}

void FillInt8Scales(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  const DequantisedWeight weight(tensor, tensor.cols, seed);
  for (int64_t row = begin; row < end; ++row, out += tensor.element_bytes()) {
    const float scale = RowOf(tensor, weight, row).scale;
    const uint16_t bits = ToBf16(scale);
    if (tensor.dtype == DType::kBF16) {
      std::memcpy(out, &bits, sizeof bits);
    } else {
      std::memcpy(out, &scale, sizeof scale);
    }
  }
}

void FillShape(const PlannedTensor& tensor, int64_t begin, int64_t end, std::byte* out) {
  const int64_t shape[] = {tensor.rows, tensor.cols};
  std::memcpy(out, shape + begin, static_cast<size_t>(end - begin) * sizeof(int64_t));
}

}  // namespace

void FillValues(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out) {
  MOE_CHECK(0 <= begin && begin <= end && end <= tensor.elements());
  const RandomWords words(seed, tensor.key);
  switch (tensor.recipe) {
    case Recipe::kFp8Codes:
      return FillCodes(words, begin, end, reinterpret_cast<uint8_t*>(out));
    case Recipe::kBlockScales:
      return FillScales(words, tensor.deviation, begin, end, out);
    case Recipe::kDequantised:
      return FillDequantised(tensor, seed, begin, end, out);
    case Recipe::kNormal:
      return FillNormal(tensor, words, begin, end, out);
    case Recipe::kInt4Codes:
      return FillGroups(tensor, seed, 4, begin, end, out, [](const auto& group) { return RoundToInt4(group).words; });
    case Recipe::kInt4Scales:
      return FillGroups(tensor, seed, 1, begin, end, out,
                        [](const auto& group) { return std::array{RoundToInt4(group).scale}; });
    case Recipe::kMxfp4Codes:
      return FillGroups(tensor, seed, 16, begin, end, out, [](const auto& group) { return RoundToMxfp4(group).bytes; });
    case Recipe::kMxfp4Scales:
      return FillGroups(tensor, seed, 1, begin, end, out,
                        [](const auto& group) { return std::array{RoundToMxfp4(group).scale}; });
    case Recipe::kShape:
      return FillShape(tensor, begin, end, out);
    case Recipe::kInt4ZCodes:
      return FillGroups(tensor, seed, 4, begin, end, out,
                        [](const auto& group) { return RoundToInt4WithZero(group).words; });
    case Recipe::kInt4ZScales:
      return FillGroups(tensor, seed, 1, begin, end, out,
                        [](const auto& group) { return std::array{RoundToInt4WithZero(group).scale}; });
    case Recipe::kInt4Zeros:
      return FillInt4Zeros(tensor, seed, begin, end, out);
    case Recipe::kAwqCodes:
      return FillByInput(tensor, seed, 8, kFourBitGroup, begin, end, out, [](const auto& groups, int64_t line) {
        return AwqWord(groups, [&](const Int4ZeroGroup& group) {
          return group.words[static_cast<size_t>(line / 8)] >> (line % 8 * 4) & 15;
        });
      });
    case Recipe::kGptqCodes:
      return FillByInput(tensor, seed, 1, kFourBitGroup / 8, begin, end, out,
                         [](const auto& groups, int64_t line) { return groups[0].words[static_cast<size_t>(line)]; });
    case Recipe::kInputScales:
      return FillByInput(tensor, seed, 1, 1, begin, end, out,
                         [](const auto& groups, int64_t) { return groups[0].scale; });
    case Recipe::kAwqZeros:
      return FillByInput(tensor, seed, 8, 1, begin, end, out, [](const auto& groups, int64_t) {
        return AwqWord(groups, [](const Int4ZeroGroup& group) { return group.zero; });
      });
    case Recipe::kGptqZeros:
      return FillByInput(tensor, seed, 8, 1, begin, end, out, [](const auto& groups, int64_t) {
        uint32_t word = 0;
        for (size_t o = 0; o < 8; ++o) word |= ((groups[o].zero + 15) & 15) << (4 * o);
        return word;
      });
    case Recipe::kGroupOfInput:
      return FillGroupOfInput(begin, end, out);
    case Recipe::kInt8Codes:
      return FillInt8Codes(tensor, seed, begin, end, out);
    case Recipe::kInt8Scales:
      return FillInt8Scales(tensor, seed, begin, end, out);
  }
}

}  // namespace moestro::cli
