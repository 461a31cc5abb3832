// Weights for tests of products: packed on the device, and as numbers.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/kernels/cuda/linear.h"
#include "common/tensor/pack.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {

// A matrix on the device, and its row-major values with scales applied.
struct Matrix {
  std::vector<double> values;
  std::unique_ptr<DeviceArray<uint8_t>> packed;
  std::unique_ptr<DeviceArray<float>> scales;

  MatrixPointers pointers() const { return {packed->get(), scales == nullptr ? nullptr : scales->get()}; }
};

inline Matrix Pack(DType dtype, int64_t rows, int64_t cols, const std::vector<uint8_t>& row_major,
                   const std::vector<float>& scales) {
  Matrix m;
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, rows, cols)));
  const int64_t row_bytes = cols * DTypeBytes(dtype);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackRows(dtype, row_major.data() + row * row_bytes, row_bytes, std::min(kRowGroup, rows - row), cols,
             packed.data() + row * PaddedCols(cols) * DTypeBytes(dtype));
  }
  m.packed = std::make_unique<DeviceArray<uint8_t>>(packed);
  if (dtype == DType::kF8E4M3) m.scales = std::make_unique<DeviceArray<float>>(scales);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const size_t i = static_cast<size_t>(row * cols + col);
      if (dtype == DType::kF8E4M3) {
        const int64_t block = row / kScaleBlock * CeilDiv(cols, kScaleBlock) + col / kScaleBlock;
        m.values.push_back(double{FromE4M3(row_major[i])} * scales[static_cast<size_t>(block)]);
      } else {
        uint16_t bits;
        std::memcpy(&bits, &row_major[2 * i], 2);
        m.values.push_back(FromBf16(bits));
      }
    }
  }
  return m;
}

inline Matrix RandomMatrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed = 0) {
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + cols) + seed);
  std::vector<uint8_t> row_major(static_cast<size_t>(rows * cols * DTypeBytes(dtype)));
  std::vector<float> scales(static_cast<size_t>(CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock)));
  for (float& scale : scales) scale = 0.02f * static_cast<float>(1 + random() % 64) / 64;
  if (dtype == DType::kF8E4M3) {
    for (uint8_t& code : row_major) {
      do code = static_cast<uint8_t>(random());
      while ((code & 0x7f) == 0x7f);
    }
  } else {
    const std::vector<uint16_t> bf16 = RandomBf16(rows * cols, static_cast<uint32_t>(random()));
    std::memcpy(row_major.data(), bf16.data(), row_major.size());
  }
  return Pack(dtype, rows, cols, row_major, scales);
}

}  // namespace moestro::cuda
