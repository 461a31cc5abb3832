#include "common/weights/segment_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/weights/checksum.h"
#include "common/weights/tensor_size.h"
#include "common/weights/verify.h"

namespace moestro::weights {
namespace {

int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t DataOffset(size_t tensors) {
  return RoundUp(kDirectoryOffset + static_cast<int64_t>(tensors * sizeof(TensorEntry)), kTensorAlignment);
}

// The entry of `plan` at `data_offset`; 0 if only its size matters.
TensorEntry EntryFor(const TensorPlan& plan, int64_t data_offset) {
  TensorEntry entry = {};
  plan.name.copy(entry.name, sizeof(entry.name) - 1);
  entry.dtype = plan.dtype;
  entry.layout = plan.layout;
  entry.rows = plan.rows;
  entry.cols = plan.cols;
  entry.data_offset = data_offset;
  entry.data_bytes = TensorDataBytes(plan.layout, plan.dtype, plan.rows, plan.cols);
  if (plan.has_scales) {
    entry.scale_offset = RoundUp(data_offset + entry.data_bytes, kScaleAlignment);
    entry.scale_bytes = TensorScaleBytes(plan.dtype, plan.rows, plan.cols);
    entry.exception_offset = RoundUp(entry.scale_offset + entry.scale_bytes, kScaleAlignment);
    entry.exception_bytes = TensorExceptionBytes(plan.dtype, plan.rows, plan.cols);
  }
  return entry;
}

// Bytes from the tensor's first byte to the earliest start of the next tensor.
int64_t Extent(const TensorPlan& plan) {
  const TensorEntry entry = EntryFor(plan, 0);
  return RoundUp(std::max(entry.data_bytes, entry.exception_offset + entry.exception_bytes), kTensorAlignment);
}

absl::Status ValidateTensor(const TensorPlan& plan) {
  if (plan.name.empty() || plan.name.size() >= kMaxTensorName || plan.name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor name '%s': must have 1 to %d bytes, none of them zero", plan.name, kMaxTensorName - 1));
  }
  const auto in_range = [](int64_t n) { return n >= 1 && n <= kMaxTensorDimension; };
  if (!in_range(plan.rows) || !in_range(plan.cols)) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor '%s': shape [%d, %d] is out of range 1..%d", plan.name,
                                                      plan.rows, plan.cols, kMaxTensorDimension));
  }
  if (!HasWholeBlocks(plan.dtype, plan.cols)) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor '%s': %d columns are no whole blocks of %s", plan.name,
                                                      plan.cols, DTypeName(plan.dtype)));
  }
  if (!IsStorable(plan.layout, plan.dtype, plan.has_scales)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor '%s': %s, %s, %s scales cannot be stored", plan.name, DTypeName(plan.dtype),
        plan.layout == TensorLayout::kPacked ? "packed" : "row-major", plan.has_scales ? "with" : "without"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePlan(const std::string& fingerprint, std::span<const TensorPlan> plan) {
  const bool is_hex = std::ranges::all_of(fingerprint, [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (fingerprint.size() != 32 || !is_hex) {
    return absl::InvalidArgumentError(absl::StrCat("fingerprint '", fingerprint, "' is not 32 hexadecimal digits"));
  }
  if (plan.empty()) return absl::InvalidArgumentError("a weight segment needs at least one tensor");
  std::string_view previous;
  for (const TensorPlan& tensor : plan) {
    MOE_RETURN_IF_ERROR(ValidateTensor(tensor));
    if (tensor.name <= previous) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' is not in name order"));
    }
    previous = tensor.name;
  }
  if (SegmentWriter::RequiredBytes(plan) == std::numeric_limits<int64_t>::max()) {
    return absl::InvalidArgumentError("the tensors have more bytes than a segment can address");
  }
  return absl::OkStatus();
}

std::vector<TensorEntry> LayOut(std::span<const TensorPlan> plan) {
  std::vector<TensorEntry> directory;
  directory.reserve(plan.size());
  int64_t offset = DataOffset(plan.size());
  for (const TensorPlan& tensor : plan) {
    directory.push_back(EntryFor(tensor, offset));
    offset += Extent(tensor);
  }
  return directory;
}

// Scales, exceptions and directory may be anywhere.
std::vector<MemoryStretch> PlaceTensors(std::span<const TensorEntry> directory, std::span<const NumaDomain> domains) {
  std::vector<MemoryStretch> stretches;
  if (domains.empty()) return stretches;
  for (const TensorEntry& entry : directory) {
    stretches.push_back({entry.data_offset, nullptr});
    const int64_t slice_bytes = TensorSliceBytes(entry.layout, entry.dtype, entry.cols);
    for (size_t domain = 0; domain < domains.size(); ++domain) {
      const IndexRange slices =
          EvenPart(ChecksumSlices(entry.rows), static_cast<int64_t>(domain), static_cast<int64_t>(domains.size()));
      const int64_t end = std::min(slices.end * slice_bytes, entry.data_bytes);
      stretches.push_back({entry.data_offset + end, &domains[domain]});
    }
  }
  return stretches;
}

}  // namespace

int64_t SegmentWriter::RequiredBytes(std::span<const TensorPlan> plan) {
  int64_t bytes = DataOffset(plan.size());
  for (const TensorPlan& tensor : plan) bytes = SaturatingAdd(bytes, Extent(tensor));
  return bytes;
}

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(const std::string& name, uint64_t generation,
                                                                     const std::string& fingerprint,
                                                                     const ModelSpec& spec,
                                                                     std::span<const TensorPlan> plan,
                                                                     const SegmentMemoryOptions& options) {
  MOE_RETURN_IF_ERROR(ValidatePlan(fingerprint, plan));
  const int64_t bytes = RequiredBytes(plan);
  std::vector<TensorEntry> directory = LayOut(plan);
  for (TensorEntry& entry : directory) entry.numa_domains = static_cast<uint32_t>(options.domains.size());
  const ReserveOptions reserve{options.threads, PlaceTensors(directory, options.domains), options.watch};
  MOE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(name, bytes, reserve));
  auto writer = Write(memory.data(), generation, fingerprint, spec, directory, bytes);
  writer->memory_ = std::move(memory);
  return writer;
}

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::CreateInMemory(uint8_t* memory, int64_t bytes,
                                                                             uint64_t generation,
                                                                             const std::string& fingerprint,
                                                                             const ModelSpec& spec,
                                                                             std::span<const TensorPlan> plan) {
  MOE_RETURN_IF_ERROR(ValidatePlan(fingerprint, plan));
  const int64_t required = RequiredBytes(plan);
  if (reinterpret_cast<uintptr_t>(memory) % kTensorAlignment != 0 || bytes < required) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a weight segment here needs %d bytes on a 4096-byte boundary", required));
  }
  return Write(memory, generation, fingerprint, spec, LayOut(plan), required);
}

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::Adopt(const std::string& name,
                                                                    const std::string& fingerprint) {
  MOE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Adopt(name));
  const auto verified = VerifySegment(memory.data(), memory.size());
  if (!verified.ok()) return Annotate(verified.status(), name);
  const auto& header = *reinterpret_cast<const SegmentHeader*>(memory.data());
  if (fingerprint != header.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": the weight segment holds checkpoint ", header.fingerprint, ", not ", fingerprint));
  }
  auto* first = reinterpret_cast<TensorEntry*>(memory.data() + header.directory_offset);
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(memory.data(), {first, verified->size()}));
  writer->memory_ = std::move(memory);
  return writer;
}

SegmentWriter::SegmentWriter(uint8_t* base, std::span<TensorEntry> directory)
    : base_(base), header_(reinterpret_cast<SegmentHeader*>(base)), directory_(directory) {
  has_checksum_.resize(directory.size());
}

SegmentWriter::~SegmentWriter() { Fail(); }

std::unique_ptr<SegmentWriter> SegmentWriter::Write(uint8_t* base, uint64_t generation, const std::string& fingerprint,
                                                    const ModelSpec& spec, std::span<const TensorEntry> directory,
                                                    int64_t total_bytes) {
  auto* header = new (base) SegmentHeader();
  header->magic = kSegmentMagic;
  header->layout_version = kSegmentLayoutVersion;
  header->generation = generation;
  fingerprint.copy(header->fingerprint, sizeof(header->fingerprint) - 1);
  header->total_bytes = total_bytes;
  header->directory_offset = kDirectoryOffset;
  header->directory_count = static_cast<int64_t>(directory.size());
  header->data_offset = DataOffset(directory.size());
  for (const TensorEntry& entry : directory) header->data_bytes += StoredBytes(entry);
  header->spec = spec;
  auto* first = reinterpret_cast<TensorEntry*>(base + kDirectoryOffset);
  std::memcpy(first, directory.data(), directory.size_bytes());
  header->state.store(static_cast<uint32_t>(SegmentState::kLoading), std::memory_order_release);
  return std::unique_ptr<SegmentWriter>(new SegmentWriter(base, {first, directory.size()}));
}

float* SegmentWriter::scales(size_t index) {
  const int64_t offset = directory_[index].scale_offset;
  return offset == 0 ? nullptr : reinterpret_cast<float*>(base_ + offset);
}

uint32_t* SegmentWriter::exceptions(size_t index) {
  const int64_t offset = directory_[index].exception_offset;
  return offset == 0 ? nullptr : reinterpret_cast<uint32_t*>(base_ + offset);
}

void SegmentWriter::AddProgress(int64_t bytes) { header_->loaded_bytes.fetch_add(bytes, std::memory_order_relaxed); }

void SegmentWriter::SetChecksum(size_t index, uint64_t checksum) {
  directory_[index].checksum = checksum;
  has_checksum_[index] = 1;
}

absl::Status SegmentWriter::Finish() {
  for (size_t i = 0; i < directory_.size(); ++i) {
    if (!has_checksum_[i]) return absl::InternalError(absl::StrCat(directory_[i].name, ": was never written"));
  }
  header_->directory_checksum = DirectoryChecksum(directory_);
  header_->header_checksum = HeaderChecksum(*header_);
  header_->loaded_bytes.store(header_->data_bytes, std::memory_order_relaxed);
  header_->state.store(static_cast<uint32_t>(SegmentState::kReady), std::memory_order_release);
  return absl::OkStatus();
}

void SegmentWriter::Fail() {
  auto expected = static_cast<uint32_t>(SegmentState::kLoading);
  header_->state.compare_exchange_strong(expected, static_cast<uint32_t>(SegmentState::kFailed));
}

}  // namespace moestro::weights
