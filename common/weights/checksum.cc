#include "common/weights/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // for the definition of XXH3_state_t
#include <xxhash.h>
// Replaces the functions above by versions that select the instruction set at run time.
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/platform/cpu/cpu_features.h"
#include "common/weights/tensor_size.h"

namespace moestro::weights {
namespace {

std::span<const uint8_t> AsBytes(std::span<const uint64_t> words) {
  return {reinterpret_cast<const uint8_t*>(words.data()), words.size_bytes()};
}

[[gnu::target("avx")]] void ZeroUpperHalves() { __builtin_ia32_vzeroupper(); }

// After libxxhash's AVX2 and AVX-512 code, which (0.8.1, of Debian 12) lacks this instruction. While the upper halves
// of vector registers are in use, a call of AVX code from SSE code costs an Intel Xeon with AMX 100 ns: SSE is what
// this build is, AVX what libm is. It holds in this thread and in all that it starts.
void LeaveAvx() {
  static const bool has_avx = DetectCpuFeatures().avx2;
  if (has_avx) ZeroUpperHalves();
}

}  // namespace

uint64_t BytesChecksum(std::span<const uint8_t> bytes) {
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  LeaveAvx();
  return hash;
}

struct ChecksumStream::State {
  XXH3_state_t hash;
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }

ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::Append(std::span<const uint8_t> bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
  LeaveAvx();
}

uint64_t ChecksumStream::Finish() {
  const uint64_t result = XXH3_64bits_digest(&state_->hash);
  XXH3_64bits_reset(&state_->hash);
  LeaveAvx();
  return result;
}

uint64_t CombineChecksums(std::span<const uint64_t> slices, std::span<const uint8_t> scales,
                          std::span<const uint8_t> exceptions) {
  std::vector<uint64_t> hashes(slices.begin(), slices.end());
  if (!scales.empty()) hashes.push_back(BytesChecksum(scales));
  if (!exceptions.empty()) hashes.push_back(BytesChecksum(exceptions));
  return BytesChecksum(AsBytes(hashes));
}

uint64_t TensorChecksum(const TensorEntry& entry, const uint8_t* base) {
  const int64_t slice_bytes = TensorSliceBytes(entry.layout, entry.dtype, entry.cols);
  std::vector<uint64_t> slices(ChecksumSlices(entry.rows));
  for (size_t i = 0; i < slices.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * slice_bytes;
    const int64_t bytes = std::min(slice_bytes, entry.data_bytes - begin);
    slices[i] = BytesChecksum({base + entry.data_offset + begin, static_cast<size_t>(bytes)});
  }
  return CombineChecksums(slices, {base + entry.scale_offset, static_cast<size_t>(entry.scale_bytes)},
                          {base + entry.exception_offset, static_cast<size_t>(entry.exception_bytes)});
}

uint64_t DirectoryChecksum(std::span<const TensorEntry> directory) {
  return BytesChecksum({reinterpret_cast<const uint8_t*>(directory.data()), directory.size_bytes()});
}

uint64_t HeaderChecksum(const SegmentHeader& header) {
  std::array<uint8_t, sizeof(SegmentHeader)> bytes = {};
  const auto* source = reinterpret_cast<const uint8_t*>(&header);
  const auto copy = [&](size_t begin, size_t end) { std::memcpy(bytes.data() + begin, source + begin, end - begin); };
  copy(0, offsetof(SegmentHeader, state));
  copy(offsetof(SegmentHeader, generation), offsetof(SegmentHeader, loaded_bytes));
  copy(offsetof(SegmentHeader, data_bytes), offsetof(SegmentHeader, header_checksum));
  copy(offsetof(SegmentHeader, spec), sizeof(SegmentHeader));
  return BytesChecksum(bytes);
}

}  // namespace moestro::weights
