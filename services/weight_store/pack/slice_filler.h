// Reads one slice (kChecksumRows rows) of a tensor from the checkpoint and writes it to its place in the segment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/segment_plan.h"
#include "common/weights/checksum.h"

namespace moestro::store {

// Slices of a transposed tensor that are read at once, from the same rows of the checkpoint.
int64_t SlicesReadTogether(const weights::TensorPlan& tensor);

// The segment's memory is written once, by a plain copy. All other work on the bytes happens in chunks that stay in the
// core's cache. One filler per thread: it owns the buffers, which grow to the largest row group so far.
class SliceFiller {
 public:
  // Both must outlive the filler.
  SliceFiller(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan)
      : checkpoint_(checkpoint), plan_(plan) {}

  // Writes all bytes of slice `slice` of tensor `tensor` to dst, including padding, and returns their checksum. FP8:
  // writes the exceptions of its row group to `exceptions`, ceil(cols/128) words; otherwise null.
  // INVALID_ARGUMENT, naming file and tensor: an FP8 NaN; a norm, router weight or bias that is not finite. Otherwise
  // the errors of SafetensorsFile::ReadAt. After an error the bytes at dst are unspecified.
  absl::StatusOr<uint64_t> Fill(size_t tensor, int64_t slice, uint8_t* dst, uint32_t* exceptions);

  // Writes the scales of an FP8 tensor, [ceil(rows/128), ceil(cols/128)]. INVALID_ARGUMENT if one is negative or not
  // finite.
  absl::Status FillScales(size_t tensor, float* dst);

 private:
  absl::Status FillFrom(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                        int64_t rows);
  absl::Status Pack(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                    int64_t rows);
  absl::Status PackTransposed(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                              int64_t rows);
  absl::Status ReadStripe(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row);
  absl::Status Copy(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row, int64_t rows);
  absl::Status Widen(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row, int64_t rows);
  absl::Status TransposeKeys(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row,
                             int64_t rows);
  // Packs `rows` rows at src. INVALID_ARGUMENT, naming `weight`, for an FP8 NaN.
  absl::Status PackFrom(const uint8_t* src, const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight,
                        int64_t rows);
  void Append(std::span<const uint8_t> bytes);
  absl::Status Read(const checkpoint::TensorRef& ref, int64_t offset, std::span<uint8_t> dst) const;
  absl::Status Corrupt(const checkpoint::TensorRef& ref, const char* what) const;

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::Plan& plan_;
  std::vector<uint8_t> buffer_;      // bytes as read
  std::vector<uint8_t> transposed_;  // 64 rows of transposed keys, or of another transposed tensor
  std::vector<uint8_t> stripe_;      // columns of a transposed tensor as the checkpoint has it
  const weights::TensorPlan* stripe_tensor_ = nullptr;
  int64_t stripe_begin_ = 0;  // its columns: these rows of the tensor
  int64_t stripe_rows_ = 0;
  std::vector<float> widened_;        // a slice of F32
  std::vector<uint8_t> chunk_;        // the next bytes for the segment
  weights::ChecksumStream checksum_;  // of the slice
  uint8_t* dst_ = nullptr;            // where the slice's next bytes go
  uint32_t* exceptions_ = nullptr;    // of the slice
};

}  // namespace moestro::store
