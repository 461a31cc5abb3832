// Where a forward pass begins: rows become vectors, positions become rotations.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/context.h"
#include "common/model/engine.h"
#include "common/model/rope.h"

namespace moestro {

// Writes the first rows of `residual`, `cosine` and `sine`. embedding: BF16 [vocab_size, hidden].
void EmbedRows(EngineContext& context, const Rope& rope, const uint16_t* embedding, std::span<const EngineRow> rows);

}  // namespace moestro
