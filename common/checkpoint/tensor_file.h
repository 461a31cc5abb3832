// A file of tensors, whatever its format: where each tensor lies, and reads of its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/tensor/block_format.h"

namespace moestro::checkpoint {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // in the format's spelling ("BF16", "I64", "Q4_K")
  std::optional<DType> dtype;  // absent: legal in a file, but no type of the segment
  int64_t element_bits = 0;    // 0 for blocks of elements that share a scale
  std::vector<int64_t> shape;  // row-major; empty for a scalar
  int64_t file_offset = 0;     // bytes from the start of the file; any alignment
  int64_t bytes = 0;           // of all elements
  // Rows of a head if the file has those of its two halves by turns, so that neighbours rotate together: row 0, n / 2,
  // 1, n / 2 + 1 and so on. 0: in their own order.
  int64_t interleaved_rows = 0;

  int64_t element_bytes() const { return element_bits / 8; }  // 0 for types below a byte, and for blocks
  // Of `count` neighbouring elements of a row; of a format of blocks, whole ones.
  int64_t BytesOf(int64_t count) const {
    return dtype && IsBlockFormat(*dtype) ? RowBytes(*dtype, count) : count * element_bytes();
  }
};

// Movable; owns its descriptor. Several threads may call const members concurrently.
class TensorFile {
 public:
  TensorFile(ReadOnlyFile file, std::vector<TensorInfo> tensors, std::string header_hash)
      : file_(std::move(file)), tensors_(std::move(tensors)), header_hash_(std::move(header_hash)) {}

  // Sorted by file_offset. References stay valid when the file object is moved.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Exactly `bytes` bytes from `offset` of the file. OUT_OF_RANGE outside the file, DATA_LOSS if it was truncated.
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const { return file_.ReadAt(offset, dst, bytes); }

  const std::string& path() const { return file_.path(); }
  int fd() const { return file_.fd(); }
  int64_t size() const { return file_.size(); }                    // bytes, header included
  int64_t mtime_ns() const { return file_.mtime_ns(); }            // since the epoch
  const std::string& header_hash() const { return header_hash_; }  // XXH3-128 of the header, 32 hex digits

  // The same file with other tensors in it, sorted by file_offset.
  TensorFile With(std::vector<TensorInfo> tensors) && {
    return TensorFile(std::move(file_), std::move(tensors), std::move(header_hash_));
  }

 private:
  ReadOnlyFile file_;
  std::vector<TensorInfo> tensors_;
  std::string header_hash_;
};

// XXH3-128 in canonical (big-endian) order, 32 lower-case hex digits.
std::string HashHex(std::string_view bytes);

}  // namespace moestro::checkpoint
