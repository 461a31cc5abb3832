#include "common/model/context.h"

#include <algorithm>

#include "common/model/attention/rope.h"
#include "common/model/engine.h"
#include "common/tensor/dtype.h"

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

void EmbedRows(const EngineContext& context, const Rope& rope, const uint16_t* embedding,
               std::span<const EngineRow> batch_rows, const RowsView& rows) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(rows.count, [&](int64_t row, int) {
    const uint16_t* vector = embedding + batch_rows[row].token * hidden;
    std::transform(vector, vector + hidden, rows.residual + row * hidden, FromBf16);
    rope.Angles(batch_rows[row].position, rows.cosine + row * rope.pairs(), rows.sine + row * rope.pairs());
  });
}

}  // namespace moestro::model
