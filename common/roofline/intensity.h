// Operations and bytes of attention and of the experts in a decode step, in one layer: what decides on which level of a
// machine they are computed (roofline.h).
#pragma once

#include "common/roofline/work_count.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

struct Work {
  double operations = 0;
  double bytes = 0;
  double intensity() const { return operations / bytes; }
};

// Which operations of attention count.
enum class AttentionCount {
  kAll,               // scores and sums of values, as AttentionFlops
  kScoresAndSoftmax,  // as MoE-Lightning counts: without sums of values, with two operations of softmax for each pair
};

// One token of each of `sequences` sequences sees `context` positions, itself included. Queries, cache and outputs have
// `value_bytes` bytes for each value. MLA: the absorbed form.
Work DecodeAttention(const weights::ModelSpec& spec, double sequences, double context, double value_bytes = 2,
                     AttentionCount count = AttentionCount::kAll);

// `rows` rows through the routed experts, all of which are read. Inputs and gated products count as 2 bytes for each
// value, once for each row.
Work DecodeExperts(const weights::ModelSpec& spec, const WeightCount& expert, double rows);

}  // namespace moestro::roofline
