#include "services/weight_store/pack/row_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/tensor/block_rows.h"
#include "common/text/json/quoted.h"
#include "common/weights/tensor_size.h"
#include "services/weight_store/pack/turn_words.h"

namespace moestro::store {
namespace {

using Kind = checkpoint::TensorSource::Kind;

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

// dst[i] = the i-th of `count` elements of `src`, which has the type `dtype_name`: F32, BF16 or F16. All conversions
// are exact.
void ToF32(std::string_view dtype_name, const uint8_t* src, int64_t count, uint8_t* dst) {
  if (dtype_name == "F32") {
    std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const bool is_bf16 = dtype_name == "BF16";
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + i * 2, sizeof bits);
    const float value = is_bf16 ? FromBf16(bits) : FromF16(bits);
    std::memcpy(dst + i * 4, &value, sizeof value);
  }
}

int64_t StripeSlices(weights::TensorLayout layout, DType dtype, int64_t cols) {
  return std::max<int64_t>(1, kStripeBytes / weights::TensorSliceBytes(layout, dtype, cols));
}

// Scale i of the `scales` of INT4.
float ScaleAt(bool bf16, const std::vector<uint8_t>& scales, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, scales.data() + i * 2, sizeof bits);
  return bf16 ? FromBf16(bits) : FromF16(bits);
}

// Nibble `nibble`, from the lowest up, of word `word`.
uint32_t NibbleAt(const std::vector<uint8_t>& words, int64_t word, int64_t nibble) {
  return words[static_cast<size_t>(word * 4 + nibble / 2)] >> (nibble % 2 * 4) & 15;
}

}  // namespace

int64_t SlicesReadTogether(const weights::TensorPlan& tensor) {
  return StripeSlices(tensor.layout, tensor.dtype, tensor.cols);
}

absl::StatusOr<std::span<const uint8_t>> RowReader::Read(size_t tensor, int64_t row, int64_t rows) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const checkpoint::TensorSource& source = plan_.sources[tensor];
  rows_.resize(static_cast<size_t>(rows * RowBytes(plan.dtype, plan.cols)));
  switch (source.kind) {
    case Kind::kRows:
      MOE_RETURN_IF_ERROR(ReadPublished(plan, source.weight, row, rows));
      return rows_;
    case Kind::kInterleaved:
      MOE_RETURN_IF_ERROR(ReadInterleaved(plan, source.weight, row, rows));
      return rows_;
    case Kind::kTransposed:
      MOE_RETURN_IF_ERROR(ReadTransposed(plan, source, row, rows));
      return rows_;
    case Kind::kWiden:
      MOE_RETURN_IF_ERROR(ReadWidened(plan, source, row, rows));
      return rows_;
    case Kind::kTransposeKeys:
      MOE_RETURN_IF_ERROR(ReadTransposedKeys(plan, source, row, rows));
      return rows_;
    case Kind::kTwoTensors:
      MOE_RETURN_IF_ERROR(ReadTwoTensors(plan, source, row, rows));
      return rows_;
    case Kind::kInt4:
    case Kind::kInt4ByInput:
      MOE_RETURN_IF_ERROR(ReadInt4(source, row, rows, rows_.data()));
      return rows_;
    case Kind::kJoinHalves:
      MOE_RETURN_IF_ERROR(ReadJoinedHalves(plan, source, row, rows));
      return rows_;
    case Kind::kRounded:
      MOE_RETURN_IF_ERROR(ReadSourceAs(plan.dtype, source, row, rows, plan.cols, rows_.data()));
      return rows_;
  }
  return absl::InternalError("unknown kind of tensor source");
}

absl::Status RowReader::ReadPublished(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight,
                                      int64_t row, int64_t) {
  return ReadBytes(weight, row * RowBytes(tensor.dtype, tensor.cols), rows_);
}

// Row h * n + p * n / 2 + i, where p is 0 or 1, is published row h * n + 2 i + p. Heads are read whole.
absl::Status RowReader::ReadInterleaved(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight,
                                        int64_t row, int64_t rows) {
  const int64_t head = weight.info->interleaved_rows;
  const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
  const int64_t first = row / head * head, end = std::min(RoundUp(row + rows, head), tensor.rows);
  buffer_.resize(static_cast<size_t>((end - first) * row_bytes));
  MOE_RETURN_IF_ERROR(ReadBytes(weight, first * row_bytes, buffer_));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t in_head = (row + i) % head;
    const int64_t published = row + i - in_head + in_head % (head / 2) * 2 + in_head / (head / 2);
    std::memcpy(rows_.data() + i * row_bytes, buffer_.data() + (published - first) * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return absl::OkStatus();
}

// Output row r, column c is published[c, r * output_step].
absl::Status RowReader::ReadTransposed(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                       int64_t row, int64_t rows) {
  if (stripe_source_ != &source || row < stripe_begin_ || row >= stripe_begin_ + stripe_rows_) {
    MOE_RETURN_IF_ERROR(ReadStripe(tensor, source, row));
  }
  const int64_t offset = (row - stripe_begin_) * DTypeBytes(tensor.dtype);
  Transpose<uint16_t>(stripe_.data() + offset, stripe_rows_, tensor.cols, rows, rows_.data());
  return absl::OkStatus();
}

// The stripe with this row: many short reads, so that few bytes are held.
absl::Status RowReader::ReadStripe(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                   int64_t row) {
  const int64_t together = SlicesReadTogether(tensor) * weights::kChecksumRows;
  const int64_t element = DTypeBytes(tensor.dtype);
  stripe_source_ = nullptr;
  stripe_begin_ = row / together * together;
  stripe_rows_ = std::min(together, tensor.rows - stripe_begin_);
  const auto part_bytes = static_cast<size_t>(stripe_rows_ * element);
  stripe_.resize(static_cast<size_t>(tensor.cols) * part_bytes);
  for (int64_t col = 0; col < tensor.cols; ++col) {
    MOE_RETURN_IF_ERROR(ReadColumns(source, col * tensor.rows + stripe_begin_, stripe_rows_,
                                    std::span(stripe_).subspan(static_cast<size_t>(col) * part_bytes, part_bytes)));
  }
  stripe_source_ = &source;
  return absl::OkStatus();
}

// Elements `first` up to first + count - 1 of those that are the tensor's.
absl::Status RowReader::ReadColumns(const checkpoint::TensorSource& source, int64_t first, int64_t count,
                                    std::span<uint8_t> dst) {
  const int64_t element = source.weight.info->element_bytes(), step = source.output_step * element;
  if (source.output_step == 1) return ReadBytes(source.weight, first * element, dst);
  columns_.resize(static_cast<size_t>((count - 1) * step + element));
  MOE_RETURN_IF_ERROR(ReadBytes(source.weight, first * step, columns_));
  for (int64_t i = 0; i < count; ++i) std::memcpy(dst.data() + i * element, columns_.data() + i * step, element);
  return absl::OkStatus();
}

absl::Status RowReader::ReadWidened(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                    int64_t row, int64_t rows) {
  const int64_t count = rows * tensor.cols;
  buffer_.resize(static_cast<size_t>(count * source.weight.info->element_bytes()));
  MOE_RETURN_IF_ERROR(ReadColumns(source, row * tensor.cols, count, buffer_));
  ToF32(source.weight.info->dtype_name, buffer_.data(), count, rows_.data());
  return absl::OkStatus();
}

// Output row h * kv_lora + l, column n is kv_b_proj[h * head_rows + n, l]. A slice may span heads.
absl::Status RowReader::ReadTransposedKeys(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                           int64_t row, int64_t rows) {
  const std::vector<int64_t>& shape = source.weight.info->shape;
  const int64_t published_rows = source.int4 ? source.int4->rows : shape[0];
  const int64_t kv_lora = source.int4 ? source.int4->cols : shape[1];
  const int64_t head_rows = published_rows / (tensor.rows / kv_lora);
  const int64_t element = DTypeBytes(tensor.dtype);
  buffer_.resize(static_cast<size_t>(tensor.cols * kv_lora * element));
  for (int64_t done = 0; done < rows;) {
    const int64_t head = (row + done) / kv_lora;
    const int64_t first = (row + done) % kv_lora;
    const int64_t count = std::min(rows - done, kv_lora - first);
    MOE_RETURN_IF_ERROR(ReadSourceAs(tensor.dtype, source, head * head_rows, tensor.cols, kv_lora, buffer_.data()));
    const uint8_t* src = buffer_.data() + first * element;
    uint8_t* out = rows_.data() + done * tensor.cols * element;
    if (element == 1) {
      Transpose<uint8_t>(src, kv_lora, tensor.cols, count, out);
    } else {
      Transpose<uint16_t>(src, kv_lora, tensor.cols, count, out);
    }
    done += count;
  }
  return absl::OkStatus();
}

// Where rows take turns with those of another tensor, those are read, too: they come from the page cache next time.
absl::Status RowReader::ReadTwoTensors(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                       int64_t row, int64_t rows) {
  const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
  const int64_t code_bytes = tensor.cols / 2, scale_bytes = row_bytes - code_bytes;
  const int64_t first = row * source.output_step, count = (rows - 1) * source.output_step + 1;
  buffer_.resize(static_cast<size_t>(count * code_bytes));
  scales_.resize(static_cast<size_t>(count * scale_bytes));
  MOE_RETURN_IF_ERROR(ReadBytes(source.weight, first * code_bytes, buffer_));
  MOE_RETURN_IF_ERROR(ReadBytes(source.scale.value(), first * scale_bytes, scales_));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = r * source.output_step;
    JoinCodesAndScales(tensor.dtype, buffer_.data() + from * code_bytes, scales_.data() + from * scale_bytes,
                       tensor.cols, rows_.data() + r * row_bytes);
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadInt4(const checkpoint::TensorSource& source, int64_t row, int64_t rows, uint8_t* dst) {
  const checkpoint::Int4Source& int4 = source.int4.value();
  if (int4.by_input == checkpoint::ByInput::kNone) return ReadInt4ByRow(source, row, rows, dst);
  for (int64_t done = 0; done < rows;) {
    MOE_ASSIGN_OR_RETURN(const int64_t count, ReadInt4ByInput(source, row + done, rows - done,
                                                              dst + done * RowBytes(int4.dtype, int4.cols)));
    done += count;
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadInt4ByRow(const checkpoint::TensorSource& source, int64_t row, int64_t rows, uint8_t* dst) {
  const checkpoint::Int4Source& int4 = source.int4.value();
  const int64_t groups = int4.cols / int4.group, code_bytes = int4.cols / 2;
  const int64_t first = int4.first_row + row * source.output_step, count = (rows - 1) * source.output_step + 1;
  const int64_t first_word = first / 8, words = CeilDiv(first + count, 8) - first_word;
  codes_.resize(static_cast<size_t>(count * code_bytes));
  scales_.resize(static_cast<size_t>(count * groups * 2));
  factors_.resize(static_cast<size_t>(groups));
  MOE_RETURN_IF_ERROR(ReadBytes(source.weight, first * code_bytes, codes_));
  MOE_RETURN_IF_ERROR(ReadBytes(source.scale.value(), first * groups * 2, scales_));
  if (int4.zeros) {
    zeros_.resize(static_cast<size_t>(words * groups * 4));
    MOE_RETURN_IF_ERROR(ReadBytes(*int4.zeros, first_word * groups * 4, zeros_));
  }
  const bool bf16 = source.scale->info->dtype_name == "BF16";
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = r * source.output_step, published = first + from;
    for (int64_t g = 0; g < groups; ++g) {
      const uint32_t zero = int4.zeros ? NibbleAt(zeros_, (published / 8 - first_word) * groups + g, published % 8) : 8;
      factors_[static_cast<size_t>(g)] = ScaleAndZero(ScaleAt(bf16, scales_, from * groups + g), zero);
    }
    JoinCodesAndZeros(int4.dtype, codes_.data() + from * code_bytes, factors_.data(), int4.group, int4.cols,
                      dst + r * RowBytes(int4.dtype, int4.cols));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RowReader::ReadInt4ByInput(const checkpoint::TensorSource& source, int64_t row, int64_t rows,
                                                   uint8_t* dst) {
  if (stripe_source_ != &source || row < stripe_begin_ || row >= stripe_begin_ + stripe_rows_) {
    MOE_RETURN_IF_ERROR(ReadInt4Stripe(source, row));
  }
  const checkpoint::Int4Source& int4 = source.int4.value();
  const bool awq = int4.by_input == checkpoint::ByInput::kAwq, less_one = int4.by_input == checkpoint::ByInput::kGptq;
  const bool bf16 = source.scale->info->dtype_name == "BF16";
  const int64_t groups = int4.cols / int4.group, code_bytes = int4.cols / 2, at = row - stripe_begin_;
  const int64_t count = std::min(rows, stripe_rows_ - at);
  codes_.resize(static_cast<size_t>(count * code_bytes));
  if (awq) {
    TurnWordsOfOutputs(stripe_.data() + at / 2, stripe_rows_ / 2, int4.cols, count, codes_.data());
  } else {
    TurnWordsOfInputs(stripe_.data() + at * 4, stripe_rows_ * 4, int4.cols, count, codes_.data());
  }
  factors_.resize(static_cast<size_t>(groups));
  for (int64_t r = 0; r < count; ++r) {
    const int64_t output = at + r, place = awq ? PlaceInWord(output % 8) : output % 8;
    for (int64_t g = 0; g < groups; ++g) {
      const uint32_t zero = NibbleAt(stripe_zeros_, (g * stripe_rows_ + output) / 8, place);
      factors_[static_cast<size_t>(g)] =
          ScaleAndZero(ScaleAt(bf16, stripe_scales_, g * stripe_rows_ + output), less_one ? (zero + 1) & 15 : zero);
    }
    JoinCodesAndZeros(int4.dtype, codes_.data() + r * code_bytes, factors_.data(), int4.group, int4.cols,
                      dst + r * RowBytes(int4.dtype, int4.cols));
  }
  return count;
}

// As ReadStripe; `row` and the ends of stripes are multiples of 8.
absl::Status RowReader::ReadInt4Stripe(const checkpoint::TensorSource& source, int64_t row) {
  const checkpoint::Int4Source& int4 = source.int4.value();
  const int64_t together = StripeSlices(weights::TensorLayout::kPacked, int4.dtype, int4.cols) * weights::kChecksumRows;
  const int64_t groups = int4.cols / int4.group;
  const bool awq = int4.by_input == checkpoint::ByInput::kAwq;
  const int64_t outputs = source.weight.info->shape[1] * (awq ? 8 : 1);  // published
  stripe_source_ = nullptr;
  if (int4.group_of_input) MOE_RETURN_IF_ERROR(CheckGroupOfInput(*int4.group_of_input, int4.cols, int4.group));
  stripe_begin_ = row / together * together;
  stripe_rows_ = std::min(together, int4.rows - stripe_begin_);
  const int64_t first = int4.first_row + stripe_begin_, rows = stripe_rows_;
  if (awq) {
    MOE_RETURN_IF_ERROR(ReadOutputs(source.weight, int4.cols, outputs / 2, first / 2, rows / 2, stripe_));
  } else {
    MOE_RETURN_IF_ERROR(ReadOutputs(source.weight, int4.cols / 8, outputs * 4, first * 4, rows * 4, stripe_));
  }
  MOE_RETURN_IF_ERROR(ReadOutputs(source.scale.value(), groups, outputs * 2, first * 2, rows * 2, stripe_scales_));
  MOE_RETURN_IF_ERROR(ReadOutputs(int4.zeros.value(), groups, outputs / 2, first / 2, rows / 2, stripe_zeros_));
  stripe_source_ = &source;
  return absl::OkStatus();
}

// `bytes` bytes from byte `first` of each line.
absl::Status RowReader::ReadOutputs(const checkpoint::TensorRef& ref, int64_t lines, int64_t line_bytes, int64_t first,
                                    int64_t bytes, std::vector<uint8_t>& dst) const {
  dst.resize(static_cast<size_t>(lines * bytes));
  if (bytes == line_bytes) return ReadBytes(ref, 0, dst);
  for (int64_t line = 0; line < lines; ++line) {
    MOE_RETURN_IF_ERROR(
        ReadBytes(ref, line * line_bytes + first,
                  std::span(dst).subspan(static_cast<size_t>(line * bytes), static_cast<size_t>(bytes))));
  }
  return absl::OkStatus();
}

absl::Status RowReader::CheckGroupOfInput(const checkpoint::TensorRef& ref, int64_t cols, int64_t group) {
  codes_.resize(static_cast<size_t>(cols * 4));
  MOE_RETURN_IF_ERROR(ReadBytes(ref, 0, codes_));
  for (int64_t i = 0; i < cols; ++i) {
    int32_t published;
    std::memcpy(&published, codes_.data() + i * 4, sizeof published);
    if (published == i / group) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_.shards()[static_cast<size_t>(ref.shard)].path(), ": tensor ",
                     text::Quoted(ref.info->name), " has input ", i, " in group ", published, ", not ", i / group,
                     ": an order of inputs (desc_act) is not supported; get the model quantised with desc_act: false"));
  }
  return absl::OkStatus();
}

// Of each head, first the keys' rows: the columns of its part of `source.keys`; then the values', as they are.
absl::Status RowReader::ReadJoinedHalves(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                         int64_t row, int64_t rows) {
  const checkpoint::TensorRef& keys = source.keys.value();
  const int64_t latent = tensor.cols, nope = keys.info->shape[1], heads = keys.info->shape[0] / latent;
  const int64_t head_rows = tensor.rows / heads, values = head_rows - nope;
  const int64_t row_bytes = RowBytes(tensor.dtype, latent);
  for (int64_t done = 0; done < rows;) {
    const int64_t head = (row + done) / head_rows, first = (row + done) % head_rows;
    uint8_t* const out = rows_.data() + done * row_bytes;
    const int64_t count = std::min(rows - done, (first < nope ? nope : head_rows) - first);
    if (first < nope) {
      buffer_.resize(static_cast<size_t>(latent * RowBytes(tensor.dtype, nope)));
      MOE_RETURN_IF_ERROR(ReadAs(tensor.dtype, keys, head * latent, latent, nope, buffer_.data()));
      Transpose<uint16_t>(buffer_.data() + first * DTypeBytes(tensor.dtype), nope, latent, count, out);
    } else {
      MOE_RETURN_IF_ERROR(ReadAs(tensor.dtype, source.weight, head * values + first - nope, count, latent, out));
    }
    done += count;
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadAs(DType dtype, const checkpoint::TensorRef& ref, int64_t row, int64_t rows, int64_t cols,
                               uint8_t* dst) {
  const DType published = ref.info->dtype.value_or(dtype);
  const int64_t row_bytes = RowBytes(published, cols);
  if (published == dtype) {
    return ReadBytes(ref, row * row_bytes, std::span(dst, static_cast<size_t>(rows * row_bytes)));
  }
  source_.resize(static_cast<size_t>(rows * row_bytes));
  MOE_RETURN_IF_ERROR(ReadBytes(ref, row * row_bytes, source_));
  return RoundToF16(ref, published, source_.data(), rows, cols, dst);
}

absl::Status RowReader::ReadSourceAs(DType dtype, const checkpoint::TensorSource& source, int64_t row, int64_t rows,
                                     int64_t cols, uint8_t* dst) {
  if (source.weight.info->dtype == DType::kI8) return ReadInt8AsF16(source, row, rows, cols, dst);
  if (!source.int4) return ReadAs(dtype, source.weight, row, rows, cols, dst);
  source_.resize(static_cast<size_t>(rows * RowBytes(source.int4->dtype, cols)));
  MOE_RETURN_IF_ERROR(ReadInt4(source, row, rows, source_.data()));
  return RoundToF16(source.weight, source.int4->dtype, source_.data(), rows, cols, dst);
}

absl::Status RowReader::ReadInt8AsF16(const checkpoint::TensorSource& source, int64_t row, int64_t rows, int64_t cols,
                                      uint8_t* dst) {
  const checkpoint::TensorRef& scale = source.scale.value();
  const int64_t scale_bytes = scale.info->element_bytes();
  source_.resize(static_cast<size_t>(rows * cols));
  scales_.resize(static_cast<size_t>(rows * scale_bytes));
  row_.resize(static_cast<size_t>(cols));
  MOE_RETURN_IF_ERROR(ReadBytes(source.weight, row * cols, source_));
  MOE_RETURN_IF_ERROR(ReadBytes(scale, row * scale_bytes, scales_));
  for (int64_t r = 0; r < rows; ++r) {
    float factor;
    ToF32(scale.info->dtype_name, scales_.data() + r * scale_bytes, 1, reinterpret_cast<uint8_t*>(&factor));
    const uint8_t* const codes = source_.data() + r * cols;
    for (int64_t c = 0; c < cols; ++c) row_[static_cast<size_t>(c)] = factor * static_cast<int8_t>(codes[c]);
    MOE_RETURN_IF_ERROR(RoundRowToF16(source.weight, dst + r * cols * 2));
  }
  return absl::OkStatus();
}

absl::Status RowReader::RoundToF16(const checkpoint::TensorRef& ref, DType published, const uint8_t* src, int64_t rows,
                                   int64_t cols, uint8_t* dst) {
  row_.resize(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r, src += RowBytes(published, cols)) {
    if (IsBlockFormat(published)) {
      DequantizeRow(published, src, cols, row_.data());
    } else {
      ToF32(ref.info->dtype_name, src, cols, reinterpret_cast<uint8_t*>(row_.data()));
    }
    MOE_RETURN_IF_ERROR(RoundRowToF16(ref, dst + r * cols * 2));
  }
  return absl::OkStatus();
}

absl::Status RowReader::RoundRowToF16(const checkpoint::TensorRef& ref, uint8_t* dst) {
  for (const float value : row_) {
    const uint16_t rounded = ToF16(value);
    if ((rounded & 0x7c00) == 0x7c00) {
      return absl::InvalidArgumentError(absl::StrCat(checkpoint_.shards()[static_cast<size_t>(ref.shard)].path(),
                                                     ": tensor ", text::Quoted(ref.info->name),
                                                     " has a value that is not finite as F16"));
    }
    std::memcpy(dst, &rounded, sizeof rounded);
    dst += sizeof rounded;
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadScales(size_t tensor, float* dst) {
  const weights::TensorPlan& plan = plan_.tensors[tensor];
  const checkpoint::TensorSource& source = plan_.sources[tensor];
  const checkpoint::TensorRef& scale = source.scale.value();
  if (plan.dtype == DType::kI8) return ReadRowScales(plan, scale, dst);
  const int64_t blocks = source.kind == Kind::kTransposeKeys
                             ? scale.info->shape[0] * scale.info->shape[1]
                             : CeilDiv(plan.rows, kScaleBlock) * CeilDiv(plan.cols, kScaleBlock);
  std::vector<float> published(static_cast<size_t>(blocks));
  buffer_.resize(static_cast<size_t>(blocks * scale.info->element_bytes()));
  MOE_RETURN_IF_ERROR(ReadBytes(scale, 0, buffer_));
  ToF32(scale.info->dtype_name, buffer_.data(), blocks, reinterpret_cast<uint8_t*>(published.data()));
  if (source.kind != Kind::kTransposeKeys) {
    std::ranges::copy(published, dst);
    return absl::OkStatus();
  }
  // As ReadTransposedKeys, in units of blocks: all of these dimensions are multiples of a block.
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

absl::Status RowReader::ReadRowScales(const weights::TensorPlan& tensor, const checkpoint::TensorRef& scale,
                                      float* dst) {
  buffer_.resize(static_cast<size_t>(tensor.rows * scale.info->element_bytes()));
  MOE_RETURN_IF_ERROR(ReadBytes(scale, 0, buffer_));
  ToF32(scale.info->dtype_name, buffer_.data(), tensor.rows, reinterpret_cast<uint8_t*>(dst));
  std::fill(dst + tensor.rows, dst + PaddedRows(tensor.rows), 0.0f);
  return absl::OkStatus();
}

absl::Status RowReader::ReadBytes(const checkpoint::TensorRef& ref, int64_t offset, std::span<uint8_t> dst) const {
  const checkpoint::TensorFile& file = checkpoint_.shards()[static_cast<size_t>(ref.shard)];
  const absl::Status status =
      file.ReadAt(ref.info->file_offset + ref.offset + offset, dst.data(), static_cast<int64_t>(dst.size()));
  return Annotate(status, absl::StrCat("tensor ", text::Quoted(ref.info->name)));
}

}  // namespace moestro::store
