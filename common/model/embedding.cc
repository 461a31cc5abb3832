#include "common/model/embedding.h"

#include <algorithm>

#include "common/tensor/dtype.h"

namespace moestro {

void EmbedRows(EngineContext& context, const Rope& rope, const uint16_t* embedding, std::span<const EngineRow> rows) {
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(static_cast<int64_t>(rows.size()), [&](int64_t row, int) {
    const uint16_t* vector = embedding + rows[row].token * hidden;
    std::transform(vector, vector + hidden, context.activations.residual.get() + row * hidden, FromBf16);
    rope.Angles(rows[row].position, context.activations.cosine.get() + row * rope.pairs(),
                context.activations.sine.get() + row * rope.pairs());
  });
}

}  // namespace moestro
