#include "services/weight_store/pack/slice_filler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/tensor/pack.h"
#include "common/text/json/quoted.h"
#include "common/weights/tensor_size.h"

namespace moestro::store {
namespace {

using Kind = checkpoint::TensorSource::Kind;

// A chunk stays in the core's first or second cache between packing, hashing and copying. Not tuned further: sizes from
// 16 KiB to 256 KiB performed equally.
constexpr int64_t kChunkBytes = int64_t{64} << 10;

// Of a transposed tensor: of DBRX's, 768 columns, 1.5 KB a read. A thread holds so much, or one slice if that is
// larger.
constexpr int64_t kStripeBytes = int64_t{16} << 20;

// dst[col * dst_rows + row] = src[row * cols + col] for an element type of T's size.
template <typename T>
void Transpose(const uint8_t* src, int64_t src_cols, int64_t rows, int64_t cols, uint8_t* dst) {
  for (int64_t col = 0; col < cols; ++col) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(dst + (col * rows + row) * int64_t{sizeof(T)}, src + (row * src_cols + col) * int64_t{sizeof(T)},
                  sizeof(T));
    }
  }
}

// dst[i] = the i-th element of `src`, which has the type `dtype_name`: F32, BF16 or F16. All conversions are exact.
void ToF32(std::string_view dtype_name, const uint8_t* src, std::span<float> dst) {
  if (dtype_name == "F32") {
    std::memcpy(dst.data(), src, dst.size_bytes());
    return;
  }
  const bool is_bf16 = dtype_name == "BF16";
  for (size_t i = 0; i < dst.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + i * 2, 2);
    dst[i] = is_bf16 ? FromBf16(bits) : FromF16(bits);
  }
}

}  // namespace

int64_t SlicesReadTogether(const weights::TensorPlan& tensor) {
  return std::max<int64_t>(1, kStripeBytes / weights::TensorSliceBytes(tensor.layout, tensor.dtype, tensor.cols));
}

absl::StatusOr<uint64_t> SliceFiller::Fill(size_t tensor, int64_t slice, uint8_t* dst, uint32_t* exceptions) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const int64_t row = slice * weights::kChecksumRows;
  dst_ = dst;
  exceptions_ = exceptions;
  const absl::Status status =
      FillFrom(plan, plan_.sources[tensor], row, std::min(weights::kChecksumRows, plan.rows - row));
  const uint64_t checksum = checksum_.Finish();
  MOE_RETURN_IF_ERROR(status);
  return checksum;
}

absl::Status SliceFiller::FillFrom(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                   int64_t row, int64_t rows) {
  switch (source.kind) {
    case Kind::kPack:
      return source.transposed ? PackTransposed(tensor, source, row, rows) : Pack(tensor, source, row, rows);
    case Kind::kCopy:
      return Copy(tensor, source.weight, row, rows);
    case Kind::kWiden:
      return Widen(tensor, source.weight, row, rows);
    case Kind::kTransposeKeys:
      return TransposeKeys(tensor, source.weight, row, rows);
  }
  return absl::InternalError("unknown kind of tensor source");
}

void SliceFiller::Append(std::span<const uint8_t> bytes) {
  checksum_.Append(bytes);
  std::memcpy(dst_, bytes.data(), bytes.size());
  dst_ += bytes.size();
}

absl::Status SliceFiller::Pack(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                               int64_t rows) {
  const int64_t row_bytes = tensor.cols * DTypeBytes(tensor.dtype);
  buffer_.resize(static_cast<size_t>(rows * row_bytes));
  MOE_RETURN_IF_ERROR(Read(source.weight, row * row_bytes, buffer_));
  return PackFrom(buffer_.data(), tensor, source.weight, rows);
}

// Output row r, column c is published[c, r].
absl::Status SliceFiller::PackTransposed(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                         int64_t row, int64_t rows) {
  const int64_t element = DTypeBytes(tensor.dtype);
  if (stripe_tensor_ != &tensor || row < stripe_begin_ || row >= stripe_begin_ + stripe_rows_) {
    MOE_RETURN_IF_ERROR(ReadStripe(tensor, source, row));
  }
  transposed_.resize(static_cast<size_t>(rows * tensor.cols * element));
  Transpose<uint16_t>(stripe_.data() + (row - stripe_begin_) * element, stripe_rows_, tensor.cols, rows,
                      transposed_.data());
  return PackFrom(transposed_.data(), tensor, source.weight, rows);
}

// The stripe with this row: many short reads, so that few bytes are held.
absl::Status SliceFiller::ReadStripe(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                     int64_t row) {
  const int64_t together = SlicesReadTogether(tensor) * weights::kChecksumRows;
  const int64_t element = DTypeBytes(tensor.dtype);
  stripe_tensor_ = nullptr;
  stripe_begin_ = row / together * together;
  stripe_rows_ = std::min(together, tensor.rows - stripe_begin_);
  const auto part_bytes = static_cast<size_t>(stripe_rows_ * element);
  stripe_.resize(static_cast<size_t>(tensor.cols) * part_bytes);
  for (int64_t col = 0; col < tensor.cols; ++col) {
    MOE_RETURN_IF_ERROR(Read(source.weight, (col * tensor.rows + stripe_begin_) * element,
                             std::span(stripe_).subspan(static_cast<size_t>(col) * part_bytes, part_bytes)));
  }
  stripe_tensor_ = &tensor;
  return absl::OkStatus();
}

absl::Status SliceFiller::PackFrom(const uint8_t* src, const weights::TensorPlan& tensor,
                                   const checkpoint::TensorRef& weight, int64_t rows) {
  const int64_t element = DTypeBytes(tensor.dtype);
  const int64_t step = kChunkBytes / kRowGroup / element;  // columns; a packed row group is ordered by column
  chunk_.resize(kChunkBytes);
  for (int64_t col = 0; col < tensor.cols; col += step) {
    const int64_t cols = std::min(step, tensor.cols - col);
    PackRows(tensor.dtype, src + col * element, tensor.cols * element, rows, cols, chunk_.data());
    const std::span packed(chunk_.data(), static_cast<size_t>(PackedBytes(tensor.dtype, kRowGroup, cols)));
    if (tensor.dtype == DType::kF8E4M3 && FindExceptions(packed.data(), cols, exceptions_ + col / kScaleBlock)) {
      return Corrupt(weight, "has a NaN");
    }
    Append(packed);
  }
  return absl::OkStatus();
}

absl::Status SliceFiller::Copy(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row,
                               int64_t rows) {
  const int64_t row_bytes = tensor.cols * DTypeBytes(tensor.dtype);
  chunk_.resize(kChunkBytes);
  for (int64_t done = 0; done < rows * row_bytes;) {
    const std::span part(chunk_.data(), static_cast<size_t>(std::min(kChunkBytes, rows * row_bytes - done)));
    MOE_RETURN_IF_ERROR(Read(weight, row * row_bytes + done, part));
    Append(part);
    done += static_cast<int64_t>(part.size());
  }
  return absl::OkStatus();
}

absl::Status SliceFiller::Widen(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row,
                                int64_t rows) {
  const int64_t element = weight.info->element_bytes();
  const int64_t count = rows * tensor.cols;
  buffer_.resize(static_cast<size_t>(count * element));
  widened_.resize(static_cast<size_t>(count));
  MOE_RETURN_IF_ERROR(Read(weight, row * tensor.cols * element, buffer_));
  ToF32(weight.info->dtype_name, buffer_.data(), widened_);
  if (!std::ranges::all_of(widened_, [](float value) { return std::isfinite(value); })) {
    return Corrupt(weight, "has a value that is not finite");
  }
  Append({reinterpret_cast<const uint8_t*>(widened_.data()), widened_.size() * sizeof(float)});
  return absl::OkStatus();
}

// Output row h * kv_lora + l, column n is kv_b_proj[h * head_rows + n, l]. A slice may span heads.
absl::Status SliceFiller::TransposeKeys(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight,
                                        int64_t row, int64_t rows) {
  const int64_t kv_lora = weight.info->shape[1];
  const int64_t head_rows = weight.info->shape[0] / (tensor.rows / kv_lora);
  const int64_t element = DTypeBytes(tensor.dtype);
  const int64_t row_bytes = tensor.cols * element;
  buffer_.resize(static_cast<size_t>(tensor.cols * kv_lora * element));
  transposed_.resize(static_cast<size_t>(rows * row_bytes));
  for (int64_t done = 0; done < rows;) {
    const int64_t head = (row + done) / kv_lora;
    const int64_t first = (row + done) % kv_lora;
    const int64_t count = std::min(rows - done, kv_lora - first);
    MOE_RETURN_IF_ERROR(Read(weight, head * head_rows * kv_lora * element, buffer_));
    const uint8_t* src = buffer_.data() + first * element;
    uint8_t* out = transposed_.data() + done * row_bytes;
    if (element == 1) {
      Transpose<uint8_t>(src, kv_lora, tensor.cols, count, out);
    } else {
      Transpose<uint16_t>(src, kv_lora, tensor.cols, count, out);
    }
    done += count;
  }
  return PackFrom(transposed_.data(), tensor, weight, rows);
}

absl::Status SliceFiller::FillScales(size_t tensor, float* dst) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const checkpoint::TensorSource& source = plan_.sources[tensor];
  const checkpoint::TensorRef& scale = source.scale.value();
  const int64_t blocks = source.kind == Kind::kTransposeKeys
                             ? scale.info->shape[0] * scale.info->shape[1]
                             : CeilDiv(plan.rows, kScaleBlock) * CeilDiv(plan.cols, kScaleBlock);
  std::vector<float> published(static_cast<size_t>(blocks));
  buffer_.resize(static_cast<size_t>(blocks * scale.info->element_bytes()));
  MOE_RETURN_IF_ERROR(Read(scale, 0, buffer_));
  ToF32(scale.info->dtype_name, buffer_.data(), published);
  for (const float value : published) {
    if (!std::isfinite(value) || std::signbit(value))
      return Corrupt(scale, "has a scale that is negative or not finite");
  }
  if (source.kind != Kind::kTransposeKeys) {
    std::ranges::copy(published, dst);
    return absl::OkStatus();
  }
  // As TransposeKeys, in units of blocks: all of these dimensions are multiples of a block.
  const int64_t lora_blocks = scale.info->shape[1];
  const int64_t key_blocks = plan.cols / kScaleBlock;
  const int64_t heads = plan.rows / kScaleBlock / lora_blocks;
  const int64_t head_blocks = scale.info->shape[0] / heads;
  for (int64_t head = 0; head < heads; ++head) {
    const float* src = published.data() + head * head_blocks * lora_blocks;
    for (int64_t l = 0; l < lora_blocks; ++l) {
      for (int64_t n = 0; n < key_blocks; ++n) *dst++ = src[n * lora_blocks + l];
    }
  }
  return absl::OkStatus();
}

absl::Status SliceFiller::Read(const checkpoint::TensorRef& ref, int64_t offset, std::span<uint8_t> dst) const {
  const checkpoint::SafetensorsFile& file = checkpoint_.shards()[static_cast<size_t>(ref.shard)];
  const absl::Status status =
      file.ReadAt(ref.info->file_offset + ref.offset + offset, dst.data(), static_cast<int64_t>(dst.size()));
  return Annotate(status, absl::StrCat("tensor ", text::Quoted(ref.info->name)));
}

absl::Status SliceFiller::Corrupt(const checkpoint::TensorRef& ref, const char* what) const {
  const checkpoint::SafetensorsFile& file = checkpoint_.shards()[static_cast<size_t>(ref.shard)];
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", text::Quoted(ref.info->name), " ", what,
                                                 ": the file is damaged, download it again"));
}

}  // namespace moestro::store
