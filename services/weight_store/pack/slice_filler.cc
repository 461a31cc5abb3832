#include "services/weight_store/pack/slice_filler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "common/text/json/quoted.h"
#include "common/weights/tensor_size.h"

namespace moestro::store {
namespace {

// A chunk stays in the core's first or second cache between packing, hashing and copying. Not tuned further: sizes from
// 16 KiB to 256 KiB performed equally.
constexpr int64_t kChunkBytes = int64_t{64} << 10;

bool AllFinite(std::span<const uint8_t> floats) {
  for (size_t i = 0; i < floats.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, floats.data() + i, sizeof value);
    if (!std::isfinite(value)) return false;
  }
  return true;
}

// Of a chunk of a row group's columns: the compensation is a sum over them. Both are 32 bits.
void AddCompensation(const uint8_t* packed, int64_t cols, uint32_t* sums, bool first) {
  std::array<int32_t, kRowGroup> part;
  FindCompensation(packed, cols, part.data());
  for (const int32_t addend : part) {
    *sums = static_cast<uint32_t>(addend) + (first ? 0 : *sums);
    ++sums;
  }
}

}  // namespace

absl::StatusOr<uint64_t> SliceFiller::Fill(size_t tensor, int64_t slice, uint8_t* dst, uint32_t* exceptions) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const int64_t row = slice * weights::kChecksumRows;
  const int64_t count = std::min(weights::kChecksumRows, plan.rows - row);
  MOE_ASSIGN_OR_RETURN(const std::span<const uint8_t> rows, reader_.Read(tensor, row, count));
  MOE_RETURN_IF_ERROR(CheckRows(tensor, rows));
  dst_ = dst;
  if (plan.layout == weights::TensorLayout::kPacked) {
    const absl::Status status = Pack(tensor, rows, count, exceptions);
    const uint64_t checksum = checksum_.Finish();
    MOE_RETURN_IF_ERROR(status);
    return checksum;
  }
  for (size_t done = 0; done < rows.size(); done += kChunkBytes) {
    Append(rows.subspan(done, std::min(size_t{kChunkBytes}, rows.size() - done)));
  }
  return checksum_.Finish();
}

// FP8 is checked once it is packed.
absl::Status SliceFiller::CheckRows(size_t tensor, std::span<const uint8_t> rows) const {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const checkpoint::TensorSource& source = plan_.sources[tensor];
  if (plan.dtype == DType::kF32 && !AllFinite(rows)) return Corrupt(source.weight, "a value that is not finite");
  if (!IsBlockFormat(plan.dtype)) return absl::OkStatus();
  const auto row_bytes = static_cast<size_t>(RowBytes(plan.dtype, plan.cols));
  for (size_t begin = 0; begin < rows.size(); begin += row_bytes) {
    const char* const bad = FindBadScale(plan.dtype, rows.data() + begin, plan.cols);
    if (bad != nullptr) return Corrupt(source.scale.value_or(source.weight), bad);
  }
  return absl::OkStatus();
}

// A packed row group is ordered by column.
absl::Status SliceFiller::Pack(size_t tensor, std::span<const uint8_t> rows, int64_t count, uint32_t* exceptions) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const bool in_blocks = IsBlockFormat(plan.dtype);
  const int64_t least = in_blocks ? FormatOf(plan.dtype).block : kScaleBlock;  // columns
  const int64_t step = kChunkBytes / PackedGroupBytes(plan.dtype, least) * least;
  const int64_t row_bytes = RowBytes(plan.dtype, plan.cols);
  chunk_.resize(kChunkBytes);
  for (int64_t col = 0; col < plan.cols; col += step) {
    const int64_t cols = std::min(step, plan.cols - col);
    const uint8_t* const src = rows.data() + RowBytes(plan.dtype, col);
    if (in_blocks) {
      PackBlockRows(plan.dtype, src, row_bytes, count, 0, cols, chunk_.data());
    } else {
      PackRows(plan.dtype, src, row_bytes, count, cols, chunk_.data());
    }
    const std::span packed(chunk_.data(), static_cast<size_t>(PackedGroupBytes(plan.dtype, cols)));
    if (plan.dtype == DType::kF8E4M3 && FindExceptions(packed.data(), cols, exceptions + col / kScaleBlock)) {
      return Corrupt(plan_.sources[tensor].weight, "a NaN");
    }
    if (plan.dtype == DType::kI8) AddCompensation(packed.data(), cols, exceptions, /*first=*/col == 0);
    Append(packed);
  }
  return absl::OkStatus();
}

void SliceFiller::Append(std::span<const uint8_t> bytes) {
  checksum_.Append(bytes);
  std::memcpy(dst_, bytes.data(), bytes.size());
  dst_ += bytes.size();
}

absl::Status SliceFiller::FillScales(size_t tensor, float* dst) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  MOE_RETURN_IF_ERROR(reader_.ReadScales(tensor, dst));
  const int64_t bytes = weights::TensorScaleBytes(plan.dtype, plan.rows, plan.cols);
  for (const float value : std::span(dst, static_cast<size_t>(bytes) / sizeof(float))) {
    if (!std::isfinite(value) || std::signbit(value)) {
      return Corrupt(*plan_.sources[tensor].scale, "a scale that is negative or not finite");
    }
  }
  return absl::OkStatus();
}

absl::Status SliceFiller::Corrupt(const checkpoint::TensorRef& ref, const char* what) const {
  const checkpoint::TensorFile& file = checkpoint_.shards()[static_cast<size_t>(ref.shard)];
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", text::Quoted(ref.info->name), " has ", what,
                                                 ": the file is damaged, download it again"));
}

}  // namespace moestro::store
