// Reads a weight segment: maps it read-only, verifies it, finds tensors. FORMAT.md specifies the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/platform/shared_memory.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/format.h"
#include "common/weights/model_spec.h"

namespace moestro::weights {

// One tensor of the segment. The pointers are valid as long as the segment's mapping.
struct TensorView {
  std::string_view name;
  TensorLayout layout = TensorLayout::kRowMajor;
  DType dtype = DType::kF32;
  int64_t rows = 0;  // 1-D tensors have rows = 1
  int64_t cols = 0;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  const float* scales = nullptr;         // FP8 and I8 only
  const uint32_t* exceptions = nullptr;  // FP8 only; of I8, the compensation, I32

  // REQUIRES: layout == kPacked.
  PackedMatrix packed() const {
    PackedMatrix matrix = {dtype, rows, cols, data, scales};
    if (dtype == DType::kI8) {
      matrix.compensation = reinterpret_cast<const int32_t*>(exceptions);
    } else {
      matrix.exceptions = exceptions;
    }
    return matrix;
  }
};

class WeightSegment {  // immutable, thread-safe
 public:
  // Maps `name` read-only and verifies it: magic, layout version, state, sizes, checksums of header and directory,
  // bounds of every tensor. NOT_FOUND, UNAVAILABLE (still loading), FAILED_PRECONDITION (other layout version, or the
  // load failed), DATA_LOSS (checksum, bounds). Does not read tensor data: see VerifyData. kLiftable: for a GPU's
  // copies.
  static absl::StatusOr<std::unique_ptr<const WeightSegment>> Open(
      const std::string& name, SharedMemory::ReadOnly kind = SharedMemory::ReadOnly::kForGood);
  // The same over the caller's memory, which must outlive it (tests, the weight store itself). INVALID_ARGUMENT if
  // `data` is not on a 4096-byte boundary.
  static absl::StatusOr<std::unique_ptr<const WeightSegment>> FromMemory(const uint8_t* data, int64_t bytes);

  const SegmentHeader& header() const { return *header_; }
  const ModelSpec& spec() const { return header_->spec; }
  std::span<const TensorEntry> directory() const { return directory_; }
  // NUMA domains over which the weights were placed when written; 0 = anywhere. Affects speed only.
  int numa_domains() const { return static_cast<int>(directory_.front().numa_domains); }
  const SharedMemory& memory() const { return memory_; }

  // NOT_FOUND names the tensor. O(log n).
  absl::StatusOr<TensorView> Find(std::string_view name) const;
  TensorView View(const TensorEntry& entry) const;

  // Reads all tensor data and compares it with the directory's checksums. DATA_LOSS names the first bad tensor.
  absl::Status VerifyData() const;

 private:
  WeightSegment() = default;
  static absl::StatusOr<std::unique_ptr<WeightSegment>> Verified(const uint8_t* data, int64_t bytes);

  SharedMemory memory_;
  const uint8_t* base_ = nullptr;
  const SegmentHeader* header_ = nullptr;
  std::span<const TensorEntry> directory_;
};

}  // namespace moestro::weights
