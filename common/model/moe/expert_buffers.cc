#include "common/model/moe/expert_buffers.h"

#include <algorithm>

#include "common/model/linear.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::model {

int64_t DenseWidth(const weights::ModelSpec& spec) {
  const int64_t dense = spec.num_moe_layers() < spec.num_layers ? spec.intermediate_size : 0;
  return std::max(dense, spec.shared_intermediate_size());
}

template <typename Take>
void ExpertBuffers::Visit(const weights::ModelSpec& spec, int threads, int64_t dense_width, Take&& take) {
  const int64_t routed = max_rows * spec.experts_per_token;
  take(gathered, routed * GatheredBytes(spec));
  take(routed_gated, routed * RowStride(spec.moe_intermediate_size));
  take(dense_gated, dense_width > 0 ? max_rows * RowStride(dense_width) : 0);
  take(dense_coded, dense_width > 0 ? max_rows * MostCodedBytes(std::max(spec.hidden_size, dense_width)) : 0);
  workers.resize(static_cast<size_t>(threads));
  for (Scratch& worker : workers) {
    take(worker.group_a, max_rows * kMaxTaskGroups * kRowGroup);
    take(worker.group_b, max_rows * kMaxTaskGroups * kRowGroup);
  }
}

ExpertBuffers::ExpertBuffers(const weights::ModelSpec& spec, int64_t rows, int threads, int64_t dense_width)
    : max_rows(rows), progress(static_cast<size_t>(spec.num_experts)) {
  Visit(spec, threads, dense_width, AllocateBuffers());
  pieces.reserve(static_cast<size_t>(spec.num_experts));
}

int64_t ExpertBuffers::Bytes(const weights::ModelSpec& spec, int64_t max_rows, int threads, int64_t dense_width) {
  CountBufferBytes count;
  ExpertBuffers(max_rows).Visit(spec, threads, dense_width, count);
  return count.bytes;
}

}  // namespace moestro::model
