#include "services/decode/throughput/cpu_attention.h"

#include <algorithm>

#include "common/model/attention/attention.h"

namespace moestro::decode {

CpuAttention::CpuAttention(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                           const CpuKernels& kernels, WorkerPool& pool, int64_t max_rows)
    : weights_(weights),
      context_{spec, kernels, pool},
      rope_(spec),
      buffers_(context_, max_rows),
      cosine_(max_rows * rope_.pairs()),
      sine_(max_rows * rope_.pairs()) {}

model::RowsView CpuAttention::View(const engine::MicroBatch& batch) const {
  const int64_t first = batch.first_row * rope_.pairs();
  return {.count = batch.rows.size(), .cosine = cosine_.get() + first, .sine = sine_.get() + first};
}

void CpuAttention::Begin(std::span<const engine::MicroBatch> micro_batches, const engine::AttentionIo& io) {
  micro_batches_ = micro_batches;
  io_ = io;
  for (const engine::MicroBatch& batch : micro_batches) {
    const model::RowsView view = View(batch);
    for (int64_t row = 0; row < view.count; ++row) {
      rope_.Angles(batch.rows.rows[static_cast<size_t>(row)].position, view.cosine + row * rope_.pairs(),
                   view.sine + row * rope_.pairs());
    }
  }
}

void CpuAttention::Store(int64_t layer, size_t micro_batch) {
  const engine::MicroBatch& batch = micro_batches_[micro_batch];
  const ScopedAffinity pinned = context_.pool.PinCaller();
  model::StoreEntries(context_, layer, batch.rows, io_.entries + batch.first_row * context_.spec.kv_dim());
}

void CpuAttention::Run(int64_t layer, size_t micro_batch) {
  const engine::MicroBatch& batch = micro_batches_[micro_batch];
  const ScopedAffinity pinned = context_.pool.PinCaller();
  const int64_t first = batch.first_row, count = batch.rows.size();
  const int64_t queries = engine::AttentionIo::QueryWidth(context_.spec);
  const int64_t width = engine::AttentionIo::OutputWidth(context_.spec);
  model::StoreEntries(context_, layer, batch.rows, io_.entries + first * context_.spec.kv_dim());
  std::copy_n(io_.queries + first * queries, count * queries, buffers_.q.get());
  model::AttendRows({context_, buffers_}, weights_.layers[layer].attention, layer, batch.rows, View(batch));
  for (int64_t row = 0; row < count; ++row) {
    std::copy_n(buffers_.attn_out.get() + row * model::AttnOutStride(context_.spec), width,
                io_.outputs + (first + row) * width);
  }
}

}  // namespace moestro::decode
