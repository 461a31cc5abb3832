// Packs one slice (kChecksumRows rows) of a tensor, hashes it and writes it to its place in the segment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/segment_plan.h"
#include "common/weights/checksum.h"
#include "services/weight_store/pack/row_reader.h"

namespace moestro::store {

// The segment's memory is written once, by a plain copy. All other work on the bytes happens in chunks that stay in the
// core's cache. One filler per thread: it owns the buffers.
class SliceFiller {
 public:
  // Both must outlive the filler.
  SliceFiller(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan)
      : checkpoint_(checkpoint), plan_(plan), reader_(checkpoint, plan) {}

  // Writes all bytes of slice `slice` of tensor `tensor` to dst, including padding, and returns their checksum. FP8:
  // writes the exceptions of its row group to `exceptions`, ceil(cols/128) words; I8: its compensation, 64 words;
  // otherwise null.
  // INVALID_ARGUMENT, naming file and tensor: an FP8 NaN; a block's scale or min, or a norm, router weight or bias,
  // that is not finite. Otherwise
  // the errors of RowReader::Read. After an error the bytes at dst are unspecified.
  absl::StatusOr<uint64_t> Fill(size_t tensor, int64_t slice, uint8_t* dst, uint32_t* exceptions);

  // Writes the scales of an FP8 or I8 tensor (RowReader::ReadScales). INVALID_ARGUMENT if one is negative or not
  // finite.
  absl::Status FillScales(size_t tensor, float* dst);

 private:
  absl::Status CheckRows(size_t tensor, std::span<const uint8_t> rows) const;
  absl::Status Pack(size_t tensor, std::span<const uint8_t> rows, int64_t count, uint32_t* exceptions);
  void Append(std::span<const uint8_t> bytes);
  absl::Status Corrupt(const checkpoint::TensorRef& ref, const char* what) const;

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::Plan& plan_;
  RowReader reader_;
  std::vector<uint8_t> chunk_;        // the next packed bytes for the segment
  weights::ChecksumStream checksum_;  // of the slice
  uint8_t* dst_ = nullptr;            // where the slice's next bytes go
};

}  // namespace moestro::store
