#include "common/model/context.h"

#include <algorithm>

#include "common/model/attention/rope.h"
#include "common/model/engine.h"
#include "common/tensor/block_rows.h"

namespace moestro::model {

template <typename Take>
void RowBuffers::Visit(int64_t max_rows, Take&& take) {
  take(residual_, max_rows * hidden_);
  take(x_, max_rows * hidden_);
  take(cosine_, max_rows * pairs_);
  take(sine_, max_rows * pairs_);
  if (has_gate_) take(shared_weights_, max_rows);
}

RowBuffers::RowBuffers(const weights::ModelSpec& spec, int64_t max_rows)
    : hidden_(spec.hidden_size), pairs_(spec.rotated_dims() / 2), has_gate_(spec.shared_expert_gate != 0) {
  Visit(max_rows, AllocateBuffers());
}

int64_t RowBuffers::Bytes(const weights::ModelSpec& spec, int64_t max_rows) {
  CountBufferBytes count;
  RowBuffers(spec, 0).Visit(max_rows, count);
  return count.bytes;
}

void EmbedRow(const Embedding& embedding, int64_t token, int64_t hidden, float* out) {
  const uint8_t* row = embedding.data + token * RowBytes(embedding.dtype, hidden);
  if (IsBlockFormat(embedding.dtype)) return DequantizeRow(embedding.dtype, row, hidden, out);
  const auto* values = reinterpret_cast<const uint16_t*>(row);
  std::transform(values, values + hidden, out, embedding.dtype == DType::kF16 ? FromF16 : FromBf16);
}

void EmbedRows(const EngineContext& context, const Rope& rope, const Embedding& embedding,
               std::span<const EngineRow> batch_rows, const RowsView& rows) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(rows.count, [&](int64_t row, int) {
    EmbedRow(embedding, batch_rows[row].token, hidden, rows.residual + row * hidden);
    rope.Angles(batch_rows[row].position, rows.cosine + row * rope.pairs(), rows.sine + row * rope.pairs());
  });
}

}  // namespace moestro::model
