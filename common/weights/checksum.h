// The hashes of a weight segment. All are XXH3-64 with seed 0. Lists of hashes are hashed as little-endian 64-bit
// words.
//
// A tensor's hash is a hash of hashes, so that threads can pack its parts in any order. Its rows are cut into slices of
// kChecksumRows; a packed tensor's last slice includes its padding rows, a row-major one's may be short. The tensor's
// checksum is the hash of [hash of slice 0, hash of slice 1, ..., hash of the scales, hash of the exceptions], without
// the last two if it has none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/weights/format.h"

namespace moestro::weights {

constexpr int64_t ChecksumSlices(int64_t rows) { return (rows + kChecksumRows - 1) / kChecksumRows; }

uint64_t BytesChecksum(std::span<const uint8_t> bytes);

// BytesChecksum of bytes that arrive in parts. Not thread-safe.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void Append(std::span<const uint8_t> bytes);
  // Returns the checksum of everything appended since the last Finish, and starts a new one.
  uint64_t Finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Combines slice hashes with scales and exceptions, which are empty if the tensor has none.
uint64_t CombineChecksums(std::span<const uint64_t> slices, std::span<const uint8_t> scales,
                          std::span<const uint8_t> exceptions);

// The checksum of the tensor described by `entry`, read from the segment at `base`. REQUIRES: VerifyEntry accepted
// `entry`.
uint64_t TensorChecksum(const TensorEntry& entry, const uint8_t* base);

uint64_t DirectoryChecksum(std::span<const TensorEntry> directory);
uint64_t HeaderChecksum(const SegmentHeader& header);

}  // namespace moestro::weights
