// Large buffers on huge pages, and the weights that fill them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/platform/worker_pool.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::bench {

// Anonymous memory for which huge pages were asked (madvise): zeroed, on a page boundary.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  // RESOURCE_EXHAUSTED if the machine has less than this available, with a hint: else filling it would end in a kill.
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

// Pseudo-random weights, the same in every run: E4M3 codes of a normal distribution (no NaN), or BF16 numbers of
// deviation `deviation`. A pattern of 8 MiB is repeated at shifting offsets, as fast as memory takes it.
class WeightPattern {  // immutable, thread-safe
 public:
  // dtype: kF8E4M3 (then deviation is without effect) or kBF16.
  explicit WeightPattern(DType dtype, double deviation = 1);
  // data on a 64-byte boundary.
  void Fill(WorkerPool& pool, uint8_t* data, int64_t bytes) const;

 private:
  std::vector<uint8_t> pattern_;
};

// The exceptions of all FP8 weights in a buffer of `bytes`, a multiple of a row group's 128 columns: one word for each
// such piece. So a packed matrix at `offset` in the buffer, whose columns are a multiple of 128, has its own at
// offset / kPieceBytes.
inline constexpr int64_t kPieceBytes = kRowGroup * kScaleBlock;
std::vector<uint32_t> ExceptionsOf(WorkerPool& pool, const uint8_t* data, int64_t bytes);

// Scales for WeightPattern's codes: multiplied by them the weights have deviation `deviation`, block by block somewhat
// more or less.
std::vector<float> MakeScales(int64_t rows, int64_t cols, double deviation);

// `count` numbers of deviation 1 as BF16.
std::vector<uint16_t> MakeInputs(int64_t count);

// One buffer, filled once per type, that is cut into as many matrices of a shape as fit: walking over all of them reads
// every byte from DRAM if the buffer is much larger than the last-level cache.
class WeightPool {
 public:
  WeightPool(WorkerPool& pool, int64_t bytes) : pool_(pool), bytes_(bytes) {}

  // Allocates and fills as needed. The errors of HugeBuffer::Allocate.
  absl::Status Prepare(DType dtype);
  // Gives the memory back; Prepare allocates it again.
  void Release() { buffer_ = HugeBuffer(); }

  const uint8_t* data() const { return buffer_.data(); }
  int64_t size() const { return bytes_; }

  // Matrices that fit; the i-th of them. All share `scales` (null for BF16): they are not part of what is counted.
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
