// One safetensors file: opening reads and checks its header; data is read on request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/safetensors_header.h"

namespace moestro::checkpoint {

// Movable; owns its descriptor. Several threads may call const members concurrently.
class SafetensorsFile {
 public:
  // Errors of ReadOnlyFile::Open and ParseSafetensorsHeader; INVALID_ARGUMENT for a file too short for its header or a
  // header above 100,000,000 bytes. Appends harmless oddities to `warnings`, if given.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path, std::vector<std::string>* warnings = nullptr);

  // Sorted by file_offset. References stay valid when the file object is moved.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Exactly `bytes` bytes from `offset` of the file. OUT_OF_RANGE outside the file, DATA_LOSS if it was truncated.
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const { return file_.ReadAt(offset, dst, bytes); }

  const std::string& path() const { return file_.path(); }
  int fd() const { return file_.fd(); }
  int64_t size() const { return file_.size(); }                    // bytes, header included
  int64_t mtime_ns() const { return file_.mtime_ns(); }            // since the epoch
  const std::string& header_hash() const { return header_hash_; }  // XXH3-128 of the header text, 32 hex digits

 private:
  SafetensorsFile(ReadOnlyFile file, std::vector<TensorInfo> tensors, std::string header_hash)
      : file_(std::move(file)), tensors_(std::move(tensors)), header_hash_(std::move(header_hash)) {}

  ReadOnlyFile file_;
  std::vector<TensorInfo> tensors_;
  std::string header_hash_;
};

// XXH3-128 in canonical (big-endian) order, 32 lower-case hex digits.
std::string HashHex(std::string_view bytes);

}  // namespace moestro::checkpoint
