// The end of a forward pass: the final norm, then logits of up to kLogitRows rows at a time, for a slice of the head or
// the whole head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/engine.h"
#include "common/model/linear.h"

namespace moestro::model {

// Rows [first, first + weights.rows) of the head; `first` is a multiple of the scale block.
struct HeadSlice {
  PackedMatrix weights;
  int64_t first = 0;
};

// Rows whose logits are computed together. They share one read of the head: products of 16 rows reach half of the rate
// of a CPU's dot products, of 64 rows 0.8. The buffer takes 39 MB for a vocabulary of 152,000.
inline constexpr int64_t kLogitRows = 64;

// The buffers of the head.
class HeadBuffers {
 public:
  explicit HeadBuffers(const weights::ModelSpec& spec) { Visit(spec, AllocateBuffers()); }
  static int64_t Bytes(const weights::ModelSpec& spec);

  Buffer<uint16_t> x;     // BF16 [kLogitRows, hidden_size]: final norms
  Buffer<uint8_t> coded;  // [kLogitRows, MostCodedBytes(hidden_size)]: x for weights that take codes
  Buffer<float> logits;   // [kLogitRows, vocab_size]

 private:
  HeadBuffers() = default;
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, Take&& take) {
    take(x, kLogitRows * spec.hidden_size);
    take(coded, kLogitRows * MostCodedBytes(spec.hidden_size));
    take(logits, kLogitRows * spec.vocab_size);
  }
};

struct HeadContext : EngineContext {
  HeadBuffers& buffers;
};

// Indices of the rows that need logits.
std::vector<int64_t> RowsWithLogits(std::span<const EngineRow> rows);
// Calls run(indices) for these rows, at most kLogitRows at a time. Stops at the first error.
absl::Status ForRowsWithLogits(std::span<const EngineRow> rows,
                               absl::FunctionRef<absl::Status(std::span<const int64_t> wanted)> run);

// buffers.x[i] = final_norm(residual[wanted[i]]), for at most kLogitRows rows.
void NormHeadInput(const HeadContext& context, const float* final_norm, const float* residual,
                   std::span<const int64_t> wanted);

// The slice's logits of the first `count` rows of buffers.x.
void RunHead(const HeadContext& context, const HeadSlice& slice, int64_t count);

// Finishes one row: padding ids become -inf. INTERNAL if a logit is NaN.
absl::Status FinishRow(const EngineRow& row, int64_t token_count, std::span<float> logits);

// Delivers the logits row by row, with padding ids as -inf. INTERNAL if a logit is NaN.
absl::Status FinishLogits(const HeadContext& context, std::span<const EngineRow> rows, std::span<const int64_t> wanted,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

}  // namespace moestro::model
