// The weight segment's bytes as plain structs; FORMAT.md specifies them. Little-endian, offsets from the segment's
// start.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro::weights {

inline constexpr uint64_t kSegmentMagic = 0x31305754534f454dull;  // the bytes "MEOSTW01"
inline constexpr uint32_t kSegmentLayoutVersion = 3;
inline constexpr int64_t kDirectoryOffset = 4096;  // the header occupies the first page
inline constexpr int64_t kTensorAlignment = 4096;  // tensor data starts on a page, so slices can be pinned separately
inline constexpr int64_t kScaleAlignment = 64;  // scales, then exceptions follow the data, each on the next cache line
inline constexpr int64_t kMaxTensorName = 112;  // including the terminating zero
// Maximum rows and columns of a tensor, so that no product of them overflows 63 bits.
inline constexpr int64_t kMaxTensorDimension = int64_t{1} << 28;
// Rows per hash: one packed row group, so that a writer hashes what it has just packed.
inline constexpr int64_t kChecksumRows = 64;

enum class SegmentState : uint32_t { kLoading = 1, kReady = 2, kFailed = 3 };

// kRowMajor: the published bytes. kPacked: common/tensor/packed_matrix.h.
enum class TensorLayout : uint32_t { kRowMajor = 0, kPacked = 1 };

struct TensorEntry {
  char name[kMaxTensorName];  // zero-terminated; the directory is sorted by name (bytewise)
  DType dtype;
  TensorLayout layout;
  int64_t rows;
  int64_t cols;
  int64_t data_offset;
  int64_t data_bytes;
  int64_t scale_offset;  // scales of FP8 and I8 (common/tensor/packed_matrix.h); 0 = none
  int64_t scale_bytes;
  int64_t exception_offset;  // exceptions of FP8 codes, compensation of I8; 0 = none
  int64_t exception_bytes;
  uint64_t checksum;      // XXH3-64 of a list of hashes: every 64 rows of the data, scales, exceptions (checksum.h)
  uint32_t numa_domains;  // NUMA domains over which its rows were placed when written; 0 = anywhere
  uint32_t reserved;      // 0
};
static_assert(sizeof(TensorEntry) == 200 && std::is_trivially_copyable_v<TensorEntry>);

// The first bytes of the segment. All fields except the atomics are written once, before state becomes kReady (release
// order).
struct SegmentHeader {
  uint64_t magic;
  uint32_t layout_version;
  std::atomic<uint32_t> state;  // SegmentState; 0 until the header is complete
  uint64_t generation;
  char fingerprint[40];  // 32 hex digits, zero-terminated: identifies the checkpoint
  int64_t total_bytes;   // size of the whole segment
  int64_t directory_offset;
  int64_t directory_count;
  int64_t data_offset;
  std::atomic<int64_t> loaded_bytes;  // progress: packed bytes written so far
  int64_t data_bytes;                 // sum of StoredBytes (tensor_size.h) of all entries
  uint64_t directory_checksum;        // XXH3-64 of the directory's bytes
  uint64_t header_checksum;           // XXH3-64 of the header with this field and the atomics zeroed
  ModelSpec spec;
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace moestro::weights
