#include "common/weights/segment.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/weights/checksum.h"
#include "common/weights/verify.h"

namespace moestro::weights {

absl::StatusOr<std::unique_ptr<const WeightSegment>> WeightSegment::Open(const std::string& name,
                                                                         SharedMemory::ReadOnly kind) {
  MOE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::OpenReadOnly(name, kind));
  auto segment = Verified(memory.data(), memory.size());
  if (!segment.ok()) return Annotate(segment.status(), name);
  (*segment)->memory_ = std::move(memory);
  return *std::move(segment);
}

absl::StatusOr<std::unique_ptr<const WeightSegment>> WeightSegment::FromMemory(const uint8_t* data, int64_t bytes) {
  return Verified(data, bytes);
}

absl::StatusOr<std::unique_ptr<WeightSegment>> WeightSegment::Verified(const uint8_t* data, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const auto directory, VerifySegment(data, bytes));
  std::unique_ptr<WeightSegment> segment(new WeightSegment());
  segment->base_ = data;
  segment->header_ = reinterpret_cast<const SegmentHeader*>(data);
  segment->directory_ = directory;
  return segment;
}

absl::StatusOr<TensorView> WeightSegment::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(directory_, name, {},
                                              [](const TensorEntry& entry) { return std::string_view(entry.name); });
  if (found == directory_.end() || name != found->name) {
    return absl::NotFoundError(absl::StrCat("the weight segment has no tensor '", std::string(name), "'"));
  }
  return View(*found);
}

TensorView WeightSegment::View(const TensorEntry& entry) const {
  const auto* scales = entry.scale_offset == 0 ? nullptr : reinterpret_cast<const float*>(base_ + entry.scale_offset);
  const auto* exceptions =
      entry.exception_offset == 0 ? nullptr : reinterpret_cast<const uint32_t*>(base_ + entry.exception_offset);
  return {.name = entry.name,
          .layout = entry.layout,
          .dtype = entry.dtype,
          .rows = entry.rows,
          .cols = entry.cols,
          .data = base_ + entry.data_offset,
          .bytes = entry.data_bytes,
          .scales = scales,
          .exceptions = exceptions};
}

absl::Status WeightSegment::VerifyData() const {
  for (const TensorEntry& entry : directory_) {
    if (TensorChecksum(entry, base_) != entry.checksum) {
      return absl::DataLossError(absl::StrCat("weight segment: the data of tensor '", entry.name,
                                              "' does not match its checksum; load the model again"));
    }
  }
  return absl::OkStatus();
}

}  // namespace moestro::weights
