#include "common/roofline/intensity.h"

#include "common/model/attention/attention.h"

namespace moestro::roofline {

Work DecodeAttention(const weights::ModelSpec& spec, double sequences, double context, double value_bytes,
                     AttentionCount count) {
  constexpr double kBf16Bytes = 2;
  constexpr model::MlaForm kForm = model::MlaForm::kAbsorbed;
  const auto heads = static_cast<double>(spec.num_heads);
  const double pairs = sequences * context;
  const double all = AttentionFlops(spec, kForm, pairs);
  // A query has as many numbers as a score has products, an output as many as a sum.
  const double queries_and_outputs = sequences * heads * static_cast<double>(model::PairProducts(spec, kForm));
  return {.operations = count == AttentionCount::kAll ? all : all / 2 + 2 * heads * pairs,
          .bytes = value_bytes * (queries_and_outputs + KvBytes(spec, pairs) / kBf16Bytes)};
}

Work DecodeExperts(const weights::ModelSpec& spec, const WeightCount& expert, double rows) {
  return {.operations = 2 * rows * static_cast<double>(spec.experts_per_token) * expert.elements,
          .bytes = 2 * rows * static_cast<double>(spec.hidden_size + spec.moe_intermediate_size) +
                   static_cast<double>(spec.num_experts) * expert.bytes};
}

}  // namespace moestro::roofline
