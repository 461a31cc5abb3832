// What a forward pass of a model must do at least, from its shapes.
#pragma once

#include <cstdint>

#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::bench {

// Multiplications and additions of a prompt of `tokens` tokens from position 0: of all linear layers, the router, the
// scores and value sums of causal attention, and the head for one row. Attention counts what the form needs once: the
// expansion of a token's latent for all heads (un-absorbed) or of queries and values (absorbed) has equally many.
double PrefillOperations(const ModelSpec& spec, MlaForm form, int64_t tokens);

// Bytes of weights and KV that one token of each of `sequences` sequences at position `position` reads, in the absorbed
// form, with FP8 linear layers (without their scales) and BF16 head: every weight once, `experts` different routed
// experts over all layers (all are equally large), and the KV of every sequence.
double DecodeBytes(const ModelSpec& spec, int64_t position, int64_t sequences, int64_t experts);

}  // namespace moestro::bench
