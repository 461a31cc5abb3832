#include "common/model/head.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/linear.h"
#include "common/model/vocabulary_sums.h"

namespace moestro::model {

int64_t HeadBuffers::Bytes(const weights::ModelSpec& spec) {
  CountBufferBytes count;
  HeadBuffers().Visit(spec, count);
  return count.bytes;
}

std::vector<int64_t> RowsWithLogits(std::span<const EngineRow> rows) {
  std::vector<int64_t> wanted;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].needs_logits) wanted.push_back(static_cast<int64_t>(row));
  }
  return wanted;
}

absl::Status ForRowsWithLogits(std::span<const EngineRow> rows,
                               absl::FunctionRef<absl::Status(std::span<const int64_t> wanted)> run) {
  std::array<int64_t, kLogitRows> wanted;
  size_t count = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].needs_logits) wanted[count++] = static_cast<int64_t>(row);
    if (count == wanted.size() || (count > 0 && row + 1 == rows.size())) {
      MOE_RETURN_IF_ERROR(run(std::span(wanted).first(count)));
      count = 0;
    }
  }
  return absl::OkStatus();
}

void NormHeadInput(const HeadContext& context, const float* final_norm, const float* residual,
                   std::span<const int64_t> wanted) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(static_cast<int64_t>(wanted.size()), [&](int64_t i, int) {
    NormResidual(context, residual + wanted[i] * hidden, final_norm, nullptr, context.buffers.x.get() + i * hidden);
  });
}

void RunHead(const HeadContext& context, const HeadSlice& slice, int64_t count) {
  const weights::ModelSpec& spec = context.spec;
  const HeadBuffers& buffers = context.buffers;
  const LinearInput x =
      CodeInputs(context, slice.weights, {buffers.x.get(), spec.hidden_size, count}, buffers.coded.get());
  ForTaskRows(context, slice.weights, [&](IndexRange rows) {
    MultiplyRows(context.kernels, slice.weights, x, rows, buffers.logits.get() + slice.first + rows.begin,
                 spec.vocab_size);
  });
}

absl::Status FinishRow(const EngineRow& row, int64_t token_count, std::span<float> logits) {
  std::ranges::fill(logits.subspan(token_count), -std::numeric_limits<float>::infinity());
  if (!HasNan(logits)) return absl::OkStatus();
  const auto nan = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit); });
  return absl::InternalError(absl::StrFormat("logit of token %d is NaN at position %d of sequence %d",
                                             nan - logits.begin(), row.position, row.sequence));
}

absl::Status FinishLogits(const HeadContext& context, std::span<const EngineRow> rows, std::span<const int64_t> wanted,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const weights::ModelSpec& spec = context.spec;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::span logits(context.buffers.logits.get() + i * spec.vocab_size, static_cast<size_t>(spec.vocab_size));
    MOE_RETURN_IF_ERROR(FinishRow(rows[wanted[i]], spec.token_count, logits));
    on_logits(wanted[i], logits);
  }
  return absl::OkStatus();
}

}  // namespace moestro::model
