#include "common/weights/verify.h"

#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/weights/checksum.h"
#include "common/weights/tensor_size.h"

namespace moestro::weights {
namespace {

constexpr const char kReload[] = "; remove it with `moestro segments prune --all` and load the model again";

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError(absl::StrCat("weight segment is damaged: ", what, kReload));
}

// Whether [offset, offset + bytes) is within [begin, end). Never overflows, for any numbers.
bool Inside(int64_t offset, int64_t bytes, int64_t begin, int64_t end) {
  return offset >= begin && offset <= end && bytes >= 0 && bytes <= end - offset;
}

bool IsTerminated(const char* text, size_t size) { return std::memchr(text, 0, size) != nullptr; }

bool IsFingerprint(const char (&text)[40]) {
  for (int i = 0; i < 32; ++i) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(text[i]))) return false;
  }
  return text[32] == 0;
}

absl::Status VerifyState(const SegmentHeader& header) {
  const uint32_t state = header.state.load(std::memory_order_acquire);
  const bool is_blank = header.magic == 0 && state == 0;  // the owner writes the magic first and the state last
  if (header.magic != kSegmentMagic && !is_blank) {
    return absl::DataLossError("not a weight segment: the magic number is wrong");
  }
  if (state == 0) return absl::UnavailableError("weight segment is being created");
  if (header.layout_version != kSegmentLayoutVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "weight segment has layout version %u, this program reads version %u: run the same release of all services",
        header.layout_version, kSegmentLayoutVersion));
  }
  switch (static_cast<SegmentState>(state)) {
    case SegmentState::kReady:
      return absl::OkStatus();
    case SegmentState::kLoading:
      return absl::UnavailableError(absl::StrFormat("weight segment is still loading: %d of %d bytes",
                                                    header.loaded_bytes.load(std::memory_order_relaxed),
                                                    header.data_bytes));
    case SegmentState::kFailed:
      return absl::FailedPreconditionError("loading of the weight segment failed; see the weight store's log");
  }
  return Damaged(absl::StrCat("state ", state, " is unknown"));
}

absl::Status VerifyHeader(const SegmentHeader& header, int64_t bytes) {
  MOE_RETURN_IF_ERROR(VerifyState(header));
  if (HeaderChecksum(header) != header.header_checksum) return Damaged("the header's checksum does not match");
  if (!IsFingerprint(header.fingerprint)) return Damaged("fingerprint is not 32 hexadecimal digits");
  if (!IsTerminated(header.spec.family, sizeof(header.spec.family))) return Damaged("spec.family is not terminated");
  const int64_t total = header.total_bytes;
  if (total < kDirectoryOffset || total > bytes) {
    return Damaged(absl::StrFormat("total_bytes is %d, but the object has %d bytes", total, bytes));
  }
  if (header.directory_offset != kDirectoryOffset) return Damaged("directory_offset is not 4096");
  const int64_t most_entries = (total - kDirectoryOffset) / static_cast<int64_t>(sizeof(TensorEntry));
  if (header.directory_count < 1 || header.directory_count > most_entries) {
    return Damaged(absl::StrCat("directory_count ", header.directory_count, " does not fit"));
  }
  const int64_t directory_bytes = header.directory_count * static_cast<int64_t>(sizeof(TensorEntry));
  if (header.data_offset % kTensorAlignment != 0 ||
      !Inside(header.data_offset, 0, kDirectoryOffset + directory_bytes, total)) {
    return Damaged(absl::StrCat("data_offset ", header.data_offset, " is not a page between directory and end"));
  }
  return absl::OkStatus();
}

// Verifies the numbers of one entry, within [begin, end) of the segment.
absl::Status VerifyEntry(const TensorEntry& entry, int64_t begin, int64_t end) {
  const auto dtype = static_cast<uint32_t>(entry.dtype);
  const auto layout = static_cast<uint32_t>(entry.layout);
  if (dtype > static_cast<uint32_t>(kLastDType)) return Damaged(absl::StrCat("dtype ", dtype, " is unknown"));
  if (layout > static_cast<uint32_t>(TensorLayout::kPacked)) {
    return Damaged(absl::StrCat("layout ", layout, " is unknown"));
  }
  if (entry.rows < 1 || entry.rows > kMaxTensorDimension || entry.cols < 1 || entry.cols > kMaxTensorDimension) {
    return Damaged(absl::StrFormat("shape [%d, %d] is out of range", entry.rows, entry.cols));
  }
  if (!HasWholeBlocks(entry.dtype, entry.cols)) {
    return Damaged(absl::StrCat(entry.cols, " columns are no whole blocks of ", DTypeName(entry.dtype)));
  }
  const bool has_scales = entry.scale_offset != 0;
  if (!IsStorable(entry.layout, entry.dtype, has_scales)) {
    return Damaged(absl::StrCat("dtype ", DTypeName(entry.dtype), ", layout ", layout, " and scales are incompatible"));
  }
  if (entry.data_bytes != TensorDataBytes(entry.layout, entry.dtype, entry.rows, entry.cols) ||
      entry.data_offset % kTensorAlignment != 0 || !Inside(entry.data_offset, entry.data_bytes, begin, end)) {
    return Damaged(absl::StrFormat("%d bytes of data at %d do not fit", entry.data_bytes, entry.data_offset));
  }
  const int64_t data_end = entry.data_offset + entry.data_bytes;
  if (entry.scale_bytes != (has_scales ? TensorScaleBytes(entry.dtype, entry.rows, entry.cols) : 0) ||
      entry.scale_offset % kScaleAlignment != 0 ||
      (has_scales && !Inside(entry.scale_offset, entry.scale_bytes, data_end, end))) {
    return Damaged(absl::StrFormat("%d bytes of scales at %d do not fit", entry.scale_bytes, entry.scale_offset));
  }
  const int64_t scale_end = entry.scale_offset + entry.scale_bytes;
  const bool has_exceptions = entry.exception_offset != 0;
  if (has_exceptions != has_scales ||
      entry.exception_bytes != (has_exceptions ? TensorExceptionBytes(entry.dtype, entry.rows, entry.cols) : 0) ||
      entry.exception_offset % kScaleAlignment != 0 ||
      (has_exceptions && !Inside(entry.exception_offset, entry.exception_bytes, scale_end, end))) {
    return Damaged(
        absl::StrFormat("%d bytes of exceptions at %d do not fit", entry.exception_bytes, entry.exception_offset));
  }
  return absl::OkStatus();
}

absl::Status VerifyDirectory(const SegmentHeader& header, std::span<const TensorEntry> directory) {
  if (DirectoryChecksum(directory) != header.directory_checksum) {
    return Damaged("the directory's checksum does not match");
  }
  std::string_view previous;
  int64_t begin = header.data_offset;  // earliest start of the next tensor: tensors never overlap
  int64_t data_bytes = 0;
  for (const TensorEntry& entry : directory) {
    if (!IsTerminated(entry.name, sizeof(entry.name))) return Damaged("a tensor's name is not terminated");
    const std::string_view name = entry.name;
    if (name.empty() || name <= previous)
      return Damaged(absl::StrCat("tensor '", std::string(name), "' is not in name order"));
    if (absl::Status status = VerifyEntry(entry, begin, header.total_bytes); !status.ok()) {
      return Annotate(status, absl::StrCat("tensor '", std::string(name), "'"));
    }
    previous = name;
    begin = entry.data_offset + entry.data_bytes;
    if (entry.exception_offset != 0) begin = entry.exception_offset + entry.exception_bytes;
    data_bytes += StoredBytes(entry);
  }
  if (data_bytes != header.data_bytes) return Damaged("data_bytes is not the sum over the directory");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::span<const TensorEntry>> VerifySegment(const uint8_t* data, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(data) % kTensorAlignment != 0) {
    return absl::InvalidArgumentError("a weight segment must lie on a 4096-byte boundary");
  }
  if (bytes < kDirectoryOffset) return Damaged(absl::StrCat("it has only ", bytes, " bytes"));
  const auto& header = *reinterpret_cast<const SegmentHeader*>(data);
  MOE_RETURN_IF_ERROR(VerifyHeader(header, bytes));
  const std::span directory(reinterpret_cast<const TensorEntry*>(data + header.directory_offset),
                            static_cast<size_t>(header.directory_count));
  MOE_RETURN_IF_ERROR(VerifyDirectory(header, directory));
  return directory;
}

}  // namespace moestro::weights
