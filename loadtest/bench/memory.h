// Large buffers on huge pages, and the weights that fill them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/platform/worker_pool.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::bench {

// Anonymous memory for which huge pages were requested (madvise): zeroed, on a page boundary.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  // RESOURCE_EXHAUSTED, with a hint, if the machine has less than this available: otherwise filling it would get the
  // process killed.
  static absl::StatusOr<HugeBuffer> Allocate(int64_t bytes);

  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Bytes of this process's memory that the kernel backs with huge pages now, and all of its anonymous memory.
struct PageUse {
  int64_t huge_bytes = 0;
  int64_t anonymous_bytes = 0;
};
PageUse ReadPageUse();

// Pseudo-random weights, the same in every run: E4M3 codes of a normal distribution (no NaN), BF16 values of deviation
// `deviation`, F16 values, INT8 codes that are all equally likely, or packed blocks of random codes with scales near
// 2^-8. Repeats a pattern of about 8 MiB at shifting offsets, at the speed of memory.
class WeightPattern {  // immutable, thread-safe
 public:
  // dtype: any but kF32. Only kBF16 has the deviation.
  explicit WeightPattern(DType dtype, double deviation = 1);
  // data is on a 64-byte boundary.
  void Fill(WorkerPool& pool, uint8_t* data, int64_t bytes) const;

 private:
  std::vector<uint8_t> pattern_;
  int64_t unit_bytes_;  // of a packed block, or of a cache line: offsets are multiples of it
};

// The exceptions of all FP8 weights in a buffer of `bytes`, a multiple of 128 columns of a row group: one word for each
// such piece. So a packed matrix at `offset` in the buffer, whose columns are a multiple of 128, has its exceptions at
// offset / kPieceBytes.
inline constexpr int64_t kPieceBytes = kRowGroup * kScaleBlock;
std::vector<uint32_t> ExceptionsOf(WorkerPool& pool, const uint8_t* data, int64_t bytes);

// The compensation of all rows of `groups` packed INT8 row groups, one after another (packed_matrix.h): kRowGroup
// numbers each. cols: a multiple of 64.
std::vector<int32_t> CompensationOf(WorkerPool& pool, const uint8_t* data, int64_t groups, int64_t cols);

// Scales for WeightPattern's INT8 codes, one for each of the padded rows; otherwise as MakeScales.
std::vector<float> MakeRowScales(int64_t rows, double deviation);

// Scales for WeightPattern's FP8 codes. The scaled weights have deviation `deviation`, varying somewhat by block.
std::vector<float> MakeScales(int64_t rows, int64_t cols, double deviation);

// `count` BF16 values of deviation 1.
std::vector<uint16_t> MakeInputs(int64_t count);

// One buffer, filled once per type and divided into as many matrices of a shape as fit. If it is much larger than the
// last-level cache, a walk over all of them reads every byte from DRAM.
class WeightPool {
 public:
  WeightPool(WorkerPool& pool, int64_t bytes) : pool_(pool), bytes_(bytes) {}

  // Allocates and fills as needed. Errors of HugeBuffer::Allocate.
  absl::Status Prepare(DType dtype);
  // Frees the memory; Prepare allocates it again.
  void Release() { buffer_ = HugeBuffer(); }

  const uint8_t* data() const { return buffer_.data(); }
  int64_t size() const { return bytes_; }

  // The number of matrices that fit, and the i-th of them. All share `scales` (null but for FP8 and I8), which are not
  // counted. A matrix of I8 still needs its compensation.
  int64_t Count(int64_t rows, int64_t cols) const { return bytes_ / PackedBytes(dtype_, rows, cols); }
  PackedMatrix Matrix(int64_t i, int64_t rows, int64_t cols, const float* scales) const;

 private:
  WorkerPool& pool_;
  int64_t bytes_;
  DType dtype_ = DType::kF8E4M3;
  HugeBuffer buffer_;
  std::vector<uint32_t> exceptions_;  // of FP8 weights
};

}  // namespace moestro::bench
