#include "loadtest/bench/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "common/platform/process_memory.h"
#include "common/report/number.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/fp8_codes.h"
#include "common/tensor/pack.h"

namespace moestro::bench {
namespace {

constexpr int64_t kPatternBytes = int64_t{8} << 20;
constexpr int64_t kCacheLine = 64;
constexpr int kMostCode = 127;  // of INT8

// Gives a block of a row a scale near 2^-8; 6-bit and 8-bit scales of sub-blocks multiply it.
void SetScale(DType dtype, uint8_t* block) {
  constexpr uint16_t kF16 = 0x1c00, kBf16 = 0x3b80;
  switch (dtype) {
    case DType::kMXFP4:
      block[0] = 119;
      return;
    case DType::kI4G32:
    case DType::kI4G128:
      std::memcpy(block, &kBf16, sizeof kBf16);
      return;
    case DType::kI4Z32:
    case DType::kI4Z128: {
      const uint32_t factors = ScaleAndZero(0x1p-8f, 8);
      std::memcpy(block, &factors, sizeof factors);
      return;
    }
    case DType::kQ6K:
      std::memcpy(block + 208, &kF16, sizeof kF16);
      return;
    default:
      std::memcpy(block, &kF16, sizeof kF16);
      if (FormatOf(dtype).has_mins) std::memcpy(block + 2, &kF16, sizeof kF16);
  }
}

// Packed blocks of 64 rows, one after another.
std::vector<uint8_t> RandomBlocks(DType dtype, int64_t count) {
  const BlockFormat format = FormatOf(dtype);
  const RandomWords words(3, "bench blocks");
  const int64_t row_bytes = RowBytes(dtype, format.block);
  std::vector<uint8_t> rows(kRowGroup * row_bytes), packed(count * format.packed_block_bytes());
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (uint8_t& byte : rows) byte = static_cast<uint8_t>(words[next / 8] >> (next % 8 * 8)), ++next;
    for (size_t at = 0; at < rows.size(); at += format.row_block_bytes) SetScale(dtype, &rows[at]);
    PackBlockRows(dtype, rows.data(), row_bytes, kRowGroup, 0, format.block,
                  packed.data() + i * format.packed_block_bytes());
  }
  return packed;
}

}  // namespace

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<HugeBuffer> HugeBuffer::Allocate(int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  if (bytes > available.bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("needs %s of memory and %s are available; see --memory and --experts", HumanBytes(bytes),
                        HumanBytes(available.bytes)));
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return absl::ResourceExhaustedError("cannot map " + HumanBytes(bytes));
  madvise(mapped, bytes, MADV_HUGEPAGE);  // A request; the report shows the result.
  HugeBuffer buffer;
  buffer.data_ = static_cast<uint8_t*>(mapped);
  buffer.size_ = bytes;
  return buffer;
}

PageUse ReadPageUse() {
  PageUse use;
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(rollup, line)) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "AnonHugePages: %ld", &kib) == 1) use.huge_bytes = kib * 1024;
    if (std::sscanf(line.c_str(), "Anonymous: %ld", &kib) == 1) use.anonymous_bytes = kib * 1024;
  }
  return use;
}

WeightPattern::WeightPattern(DType dtype, double deviation) : unit_bytes_(kCacheLine) {
  if (IsBlockFormat(dtype)) {
    unit_bytes_ = FormatOf(dtype).packed_block_bytes();
    pattern_ = RandomBlocks(dtype, kPatternBytes / unit_bytes_);
    return;
  }
  pattern_.resize(kPatternBytes);
  const RandomWords words(0, "bench pattern");
  if (dtype == DType::kI8) {
    for (int64_t i = 0; i < kPatternBytes; ++i) {
      const auto draw = static_cast<int>(words[i / 4] >> (16 * (i % 4)) & 0xffff);
      pattern_[i] = static_cast<uint8_t>(draw % (2 * kMostCode + 1) - kMostCode);
    }
    return;
  }
  const MagnitudeTable& table = Fp8Magnitudes();
  const int64_t width = DTypeBytes(dtype);
  for (int64_t i = 0; i < kPatternBytes / width; ++i) {
    const uint8_t code = Fp8Code(table, static_cast<uint16_t>(words[i / 4] >> (16 * (i % 4))));
    if (dtype == DType::kF8E4M3) {
      pattern_[i] = code;
      continue;
    }
    // The code's bits as those of an F16 are its value times 2^-8.
    const auto f16 = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7);
    const uint16_t bf16 = ToBf16(FromE4M3(code) * static_cast<float>(deviation / kCodeStdDev));
    std::memcpy(&pattern_[i * width], dtype == DType::kF16 ? &f16 : &bf16, sizeof bf16);
  }
}

void WeightPattern::Fill(WorkerPool& pool, uint8_t* data, int64_t bytes) const {
  const auto pattern_bytes = static_cast<int64_t>(pattern_.size());
  pool.Run(CeilDiv(bytes, pattern_bytes), [&](int64_t chunk, int) {
    uint8_t* const to = data + chunk * pattern_bytes;
    const int64_t size = std::min(pattern_bytes, bytes - chunk * pattern_bytes);
    const auto units = static_cast<uint64_t>(pattern_bytes / unit_bytes_);
    const auto offset = static_cast<int64_t>(MixBits(static_cast<uint64_t>(chunk)) % units) * unit_bytes_;
    const int64_t first = std::min(size, pattern_bytes - offset);
    std::memcpy(to, pattern_.data() + offset, first);
    std::memcpy(to + first, pattern_.data(), size - first);
  });
}

std::vector<uint32_t> ExceptionsOf(WorkerPool& pool, const uint8_t* data, int64_t bytes) {
  std::vector<uint32_t> exceptions(bytes / kPieceBytes);
  pool.Run(static_cast<int64_t>(exceptions.size()),
           [&](int64_t i, int) { FindExceptions(data + i * kPieceBytes, kScaleBlock, &exceptions[i]); });
  return exceptions;
}

std::vector<int32_t> CompensationOf(WorkerPool& pool, const uint8_t* data, int64_t groups, int64_t cols) {
  std::vector<int32_t> compensation(groups * kRowGroup);
  pool.Run(groups, [&](int64_t group, int) {
    const auto* codes = reinterpret_cast<const int8_t*>(data) + group * kRowGroup * cols;
    int32_t* sums = &compensation[group * kRowGroup];
    for (int64_t col = 0; col < cols; col += 4) {
      for (int64_t i = 0; i < 4 * kRowGroup; ++i) sums[i / 4] -= 128 * codes[i];
      codes += 4 * kRowGroup;
    }
  });
  return compensation;
}

std::vector<float> MakeRowScales(int64_t rows, double deviation) {
  const RandomWords words(4, "bench row scales");
  const double code_deviation = std::sqrt(kMostCode * (kMostCode + 1) / 3.0);
  std::vector<float> scales(PaddedRows(rows));
  for (size_t i = 0; i < scales.size(); ++i) {
    const double factor = 0.75 + 0.5 * static_cast<double>(words[i] >> 40) * 0x1p-24;
    scales[i] = static_cast<float>(deviation / code_deviation * factor);
  }
  return scales;
}

std::vector<float> MakeScales(int64_t rows, int64_t cols, double deviation) {
  const RandomWords words(1, "bench scales");
  std::vector<float> scales(CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock));
  for (size_t i = 0; i < scales.size(); ++i) {
    const double factor = 0.75 + 0.5 * static_cast<double>(words[i] >> 40) * 0x1p-24;
    scales[i] = static_cast<float>(deviation / kCodeStdDev * factor);
  }
  return scales;
}

std::vector<uint16_t> MakeInputs(int64_t count) {
  const RandomWords words(2, "bench inputs");
  std::vector<uint16_t> inputs(count);
  for (int64_t i = 0; i < count; ++i) {
    // Uniform with deviation 1: at most the square root of 3.
    inputs[i] = ToBf16(static_cast<float>(std::sqrt(3.0) * (static_cast<double>(words[i] >> 40) * 0x1p-23 - 1)));
  }
  return inputs;
}

absl::Status WeightPool::Prepare(DType dtype) {
  if (buffer_.data() != nullptr && dtype == dtype_) return absl::OkStatus();
  if (buffer_.data() == nullptr) {
    MOE_ASSIGN_OR_RETURN(buffer_, HugeBuffer::Allocate(bytes_));
  }
  dtype_ = dtype;
  WeightPattern(dtype).Fill(pool_, buffer_.data(), bytes_);
  exceptions_.clear();
  if (dtype == DType::kF8E4M3) exceptions_ = ExceptionsOf(pool_, buffer_.data(), bytes_);
  return absl::OkStatus();
}

PackedMatrix WeightPool::Matrix(int64_t i, int64_t rows, int64_t cols, const float* scales) const {
  const int64_t offset = i * PackedBytes(dtype_, rows, cols);
  const bool whole = dtype_ == DType::kF8E4M3 && cols % kScaleBlock == 0;
  return {.dtype = dtype_,
          .rows = rows,
          .cols = cols,
          .data = buffer_.data() + offset,
          .scales = scales,
          .exceptions = whole ? exceptions_.data() + offset / kPieceBytes : nullptr};
}

}  // namespace moestro::bench
