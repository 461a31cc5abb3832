// Weights for tests of products: packed on the device, and as numbers.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/kernels/cuda/linear.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "tests/cuda/kernels/numbers.h"
#include "tests/support/random_blocks.h"

namespace moestro::cuda {

// A matrix on the device, and its row-major values with scales applied.
struct Matrix {
  DType dtype = DType::kBF16;
  std::vector<double> values;
  std::vector<double> magnitudes;  // of the terms of each value: scale times code, and the min
  std::unique_ptr<DeviceArray<uint8_t>> packed;
  std::unique_ptr<DeviceArray<float>> scales;

  MatrixPointers pointers() const { return {packed->get(), scales == nullptr ? nullptr : scales->get()}; }
};

inline Matrix Pack(DType dtype, int64_t rows, int64_t cols, const std::vector<uint8_t>& row_major,
                   const std::vector<float>& scales) {
  Matrix m{.dtype = dtype, .values = {}, .magnitudes = {}, .packed = nullptr, .scales = nullptr};
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, rows, cols)));
  const int64_t row_bytes = cols * DTypeBytes(dtype);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackRows(dtype, row_major.data() + row * row_bytes, row_bytes, std::min(kRowGroup, rows - row), cols,
             packed.data() + row / kRowGroup * PackedGroupBytes(dtype, cols));
  }
  m.packed = std::make_unique<DeviceArray<uint8_t>>(packed);
  if (dtype == DType::kF8E4M3 || dtype == DType::kI8) m.scales = std::make_unique<DeviceArray<float>>(scales);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const size_t i = static_cast<size_t>(row * cols + col);
      if (dtype == DType::kF8E4M3) {
        const int64_t block = row / kScaleBlock * CeilDiv(cols, kScaleBlock) + col / kScaleBlock;
        m.values.push_back(double{FromE4M3(row_major[i])} * scales[static_cast<size_t>(block)]);
      } else if (dtype == DType::kI8) {
        m.values.push_back(double{scales[static_cast<size_t>(row)]} * static_cast<int8_t>(row_major[i]));
      } else {
        uint16_t bits;
        std::memcpy(&bits, &row_major[2 * i], 2);
        m.values.push_back(dtype == DType::kF16 ? FromF16(bits) : FromBf16(bits));
      }
      m.magnitudes.push_back(std::fabs(m.values.back()));
    }
  }
  return m;
}

// Adds the weights of a row to `values`, and their terms to `magnitudes`. Both terms are exact in F32.
inline void AppendBlockRow(DType dtype, std::vector<uint8_t> row, int64_t cols, Matrix* m) {
  const BlockFormat format = FormatOf(dtype);
  std::vector<float> scaled(static_cast<size_t>(cols)), minus_min(static_cast<size_t>(cols));
  if (HasZeroPoints(dtype)) {
    std::vector<uint8_t> zeros = row;
    for (size_t at = 0; at < row.size(); at += static_cast<size_t>(format.row_block_bytes)) {
      row[at] &= static_cast<uint8_t>(~kZeroOfI4Z);
      std::memset(&zeros[at + 4], 0, static_cast<size_t>(format.row_block_bytes) - 4);
    }
    DequantizeRow(dtype, row.data(), cols, scaled.data());
    DequantizeRow(dtype, zeros.data(), cols, minus_min.data());
  } else if (format.has_mins) {
    const auto dequantize_without = [&](size_t half, std::vector<float>* out) {
      std::vector<uint8_t> without = row;
      for (size_t at = 0; at < row.size(); at += static_cast<size_t>(format.row_block_bytes)) {
        std::memset(&without[at + half], 0, 2);
      }
      DequantizeRow(dtype, without.data(), cols, out->data());
    };
    dequantize_without(0, &minus_min);
    dequantize_without(2, &scaled);
  } else {
    DequantizeRow(dtype, row.data(), cols, scaled.data());
  }
  for (size_t i = 0; i < scaled.size(); ++i) {
    m->values.push_back(double{scaled[i]} + minus_min[i]);
    m->magnitudes.push_back(std::fabs(double{scaled[i]}) + std::fabs(double{minus_min[i]}));
  }
}

// scale: as RandomBlocks has it.
inline Matrix RandomBlockMatrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale) {
  Matrix m{.dtype = dtype, .values = {}, .magnitudes = {}, .packed = nullptr, .scales = nullptr};
  const std::vector<uint8_t> row_major = moestro::testing::RandomBlocks(dtype, rows, cols, seed, scale);
  const int64_t row_bytes = RowBytes(dtype, cols);
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, rows, cols)));
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackBlockRows(dtype, row_major.data() + row * row_bytes, row_bytes, std::min(kRowGroup, rows - row), 0, cols,
                  packed.data() + row / kRowGroup * PackedGroupBytes(dtype, cols));
  }
  m.packed = std::make_unique<DeviceArray<uint8_t>>(packed);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = row_major.begin() + row * row_bytes;
    AppendBlockRow(dtype, {first, first + row_bytes}, cols, &m);
  }
  return m;
}

inline Matrix RandomMatrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed = 0) {
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + cols) + seed);
  // Scales of all exponents where none is so large that sums overflow.
  if (IsBlockFormat(dtype)) {
    return RandomBlockMatrix(dtype, rows, cols, static_cast<uint32_t>(random()), dtype == DType::kMXFP4 ? 0.01f : 0);
  }
  std::vector<uint8_t> row_major(static_cast<size_t>(rows * cols * DTypeBytes(dtype)));
  const int64_t scale_count =
      dtype == DType::kI8 ? PaddedRows(rows) : CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock);
  std::vector<float> scales(static_cast<size_t>(scale_count));
  for (float& scale : scales) scale = 0.02f * static_cast<float>(1 + random() % 64) / 64;
  if (dtype == DType::kF8E4M3) {
    for (uint8_t& code : row_major) {
      do code = static_cast<uint8_t>(random());
      while ((code & 0x7f) == 0x7f);
    }
  } else if (dtype == DType::kI8) {
    for (uint8_t& code : row_major) code = static_cast<uint8_t>(random());
  } else if (dtype == DType::kF16) {
    for (size_t i = 0; i < row_major.size(); i += 2) {  // of all exponents but that of infinities, subnormal ones too
      uint32_t bits;
      do bits = static_cast<uint32_t>(random()) & 0xffffu;
      while ((bits & 0x7c00u) == 0x7c00u);
      std::memcpy(&row_major[i], &bits, 2);
    }
  } else {
    const std::vector<uint16_t> bf16 = RandomBf16(rows * cols, static_cast<uint32_t>(random()));
    std::memcpy(row_major.data(), bf16.data(), row_major.size());
  }
  return Pack(dtype, rows, cols, row_major, scales);
}

}  // namespace moestro::cuda
