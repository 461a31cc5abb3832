// Writes a weight segment: plans its size, creates it, lets many threads fill it, publishes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/platform/numa.h"
#include "common/platform/shared_memory.h"
#include "common/weights/format.h"
#include "common/weights/model_spec.h"

namespace moestro::weights {

// One tensor to store. 1-D tensors have rows = 1. F32 is row-major, FP8 and I8 are packed, all others may be either.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kF32;
  TensorLayout layout = TensorLayout::kRowMajor;
  int64_t rows = 0;
  int64_t cols = 0;
  bool has_scales = false;  // scales and exceptions: HasScales(dtype) of tensor_size.h
};

struct SegmentMemoryOptions {
  int threads = 0;  // threads that reserve the memory; 0: one per CPU that the calling thread may use
  // Placement of the tensors' memory: of S slices of 64 rows, slice s goes to domain EvenPartOf(s, S, domains), which
  // computes it. Boundaries are rounded to pages. Only a hint, but recorded as numa_domains: first check that the
  // system allows it. Empty: anywhere.
  std::vector<NumaDomain> domains = {};
  std::function<absl::Status(int64_t bytes)> watch = {};  // as ReserveOptions::watch
};

// The owner of a segment. Life: Create -> fill data, scales, exceptions and checksums -> Finish, or Fail. The
// destructor fails an unfinished segment, so that nobody waits for it for ever. `index` is a tensor's position in the
// plan and in the directory.
class SegmentWriter {
 public:
  // The size of a segment with these tensors, in any order; allocates nothing. The maximum int64_t if the size
  // overflows. REQUIRES: dimensions in 1..kMaxTensorDimension.
  static int64_t RequiredBytes(std::span<const TensorPlan> plan);

  // Creates the shared-memory object and writes header (state LOADING) and directory. INVALID_ARGUMENT if the plan is
  // empty, is not strictly sorted by name (bytewise), or holds a tensor that cannot be stored, or if the fingerprint is
  // not 32 hex digits. Otherwise the errors of SharedMemory::Create.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> Create(const std::string& name, uint64_t generation,
                                                               const std::string& fingerprint, const ModelSpec& spec,
                                                               std::span<const TensorPlan> plan,
                                                               const SegmentMemoryOptions& memory = {});
  // The same in the caller's memory, which must outlive the writer: zeroed, on a 4096-byte boundary, `bytes` >=
  // RequiredBytes.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> CreateInMemory(uint8_t* memory, int64_t bytes,
                                                                       uint64_t generation,
                                                                       const std::string& fingerprint,
                                                                       const ModelSpec& spec,
                                                                       std::span<const TensorPlan> plan);
  // Adopts a READY segment after a restart of its owner, verified as in WeightSegment::Open. Errors of
  // WeightSegment::Open and SharedMemory::Adopt; FAILED_PRECONDITION also if it holds another checkpoint.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> Adopt(const std::string& name, const std::string& fingerprint);

  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;
  ~SegmentWriter();

  const SegmentHeader& header() const { return *header_; }
  std::span<const TensorEntry> directory() const { return directory_; }
  const SharedMemory& memory() const { return memory_; }  // empty for the caller's memory

  // The memory of tensor `index`. Zero until written, so padding needs no writing.
  uint8_t* data(size_t index) { return base_ + directory_[index].data_offset; }
  float* scales(size_t index);         // null if it has none
  uint32_t* exceptions(size_t index);  // null if it has none

  void AddProgress(int64_t bytes);                    // thread-safe
  void SetChecksum(size_t index, uint64_t checksum);  // thread-safe for different indices; see checksum.h

  // Publishes the segment: checksums of directory and header, then state READY (release order). INTERNAL if a tensor
  // has no checksum; the segment then stays LOADING. Call once, after all writing threads are done.
  absl::Status Finish();
  // Sets state FAILED. No effect on a READY segment. Thread-safe.
  void Fail();

 private:
  SegmentWriter(uint8_t* base, std::span<TensorEntry> directory);
  static std::unique_ptr<SegmentWriter> Write(uint8_t* base, uint64_t generation, const std::string& fingerprint,
                                              const ModelSpec& spec, std::span<const TensorEntry> directory,
                                              int64_t total_bytes);

  SharedMemory memory_;  // empty for the caller's memory
  uint8_t* base_;
  SegmentHeader* header_;
  std::span<TensorEntry> directory_;
  std::vector<uint8_t> has_checksum_;  // bytes, not bits: threads set different elements
};

}  // namespace moestro::weights
