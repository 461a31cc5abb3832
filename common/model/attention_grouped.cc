#include <algorithm>

#include "common/model/attention.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

int64_t KeysWidth(const ModelSpec& spec) { return spec.num_kv_heads * spec.v_head_dim; }

// x = rotated norm(x), of one head. REQUIRES: a head rotates as a whole.
void NormAndRotate(const EngineContext& context, const float* norm, int64_t row, float* x) {
  const int64_t dim = context.spec.v_head_dim;
  const int64_t pairs = dim / 2;
  context.kernels.rms_norm(x, norm, dim, static_cast<float>(context.spec.rms_norm_eps), x, nullptr);
  RotateHalves(context.activations.cosine.get() + row * pairs, context.activations.sine.get() + row * pairs, pairs, x);
}

// One layer's blocks of the batch's sequences, packed in the workers' scratch.
class PackedBlocks {
 public:
  PackedBlocks(EngineContext& context, int64_t layer, const CheckedBatch& batch)
      : context_(context), layer_(layer), batch_(batch) {}

  KvBlock operator()(const FlashAttention::BlockRequest& request) const {
    const KvPages& cache = batch_.pages(batch_.runs[request.run].begin);
    if (request.kv_head == request.kv_heads.begin) Pack(cache.Block(layer_, request.block), request);
    const int64_t i = request.kv_head - request.kv_heads.begin;
    const WorkerScratch& scratch = context_.activations.workers[request.worker];
    const int64_t head_bytes = kPageTokens * dim_ * 2;  // of keys, or values; in the cache's rows as many
    KvBlock packed{.keys = scratch.packed_keys.get() + i * head_bytes,
                   .values = scratch.packed_values.get() + i * head_bytes,
                   .cached = true};
    if (request.kv_heads.size() == context_.spec.num_kv_heads) {  // so whole rows come next
      const uint16_t* next = cache.Block(layer_, request.more ? request.block + 1 : request.block);
      packed.prefetch = reinterpret_cast<const uint8_t*>(next) + i * 2 * head_bytes;
      packed.prefetch_beside_values = packed.prefetch + head_bytes;
    }
    return packed;
  }

 private:
  // For all kv heads that the worker will ask for, so that rows are read in the order in which they lie. A head alone
  // would be read in pieces that are a row apart, which share few sets of the caches: two thirds as fast. A head has a
  // multiple of 64 numbers (CheckSpec), so the matrices of heads side by side are one matrix of the packed layout.
  void Pack(const uint16_t* block, const FlashAttention::BlockRequest& request) const {
    const WorkerScratch& scratch = context_.activations.workers[request.worker];
    const int64_t stride = context_.spec.kv_dim();
    const int64_t width = request.kv_heads.size() * dim_;
    const uint16_t* keys = block + request.kv_heads.begin * dim_;
    context_.kernels.pack_keys(keys, stride, request.tokens, width, scratch.packed_keys.get());
    context_.kernels.pack_values(keys + KeysWidth(context_.spec), stride, request.tokens, width,
                                 scratch.packed_values.get());
  }

  EngineContext& context_;
  int64_t layer_;
  const CheckedBatch& batch_;
  int64_t dim_ = context_.spec.v_head_dim;
};

}  // namespace

float* GroupedValues(const EngineContext& context, int64_t rows) {
  return context.activations.kv_a.get() + rows * KeysWidth(context.spec);
}

void StoreKeysValues(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                     const CheckedBatch& batch) {
  const int64_t dim = context.spec.v_head_dim;
  const int64_t width = KeysWidth(context.spec);
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    uint16_t* entry = batch.pages(row).Token(layer, batch.rows[row].position);
    float* keys = context.activations.kv_a.get() + row * width;
    for (int64_t head = 0; head < context.spec.num_kv_heads; ++head) {
      NormAndRotate(context, weights.k_norm, row, keys + head * dim);
    }
    context.kernels.to_bf16(keys, width, entry);
    context.kernels.to_bf16(GroupedValues(context, batch.size()) + row * width, width, entry + width);
  });
}

// queries[kv head, row, head of the group]
void NarrowGroupedQueries(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  const ModelSpec& spec = context.spec;
  const int64_t dim = spec.v_head_dim;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  context.pool.Run(rows, [&](int64_t row, int) {
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      float* query = context.activations.q.get() + (row * spec.num_heads + head) * dim;
      NormAndRotate(context, weights.q_norm, row, query);
      const int64_t place = (head / group * rows + row) * group + head % group;
      context.kernels.to_bf16(query, dim, context.activations.queries.get() + place * dim);
    }
  });
}

void AttendGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch) {
  Activations& a = context.activations;
  context.head_attention.Run(QueryRunsOf(batch), a.queries.get(), PackedBlocks(context, layer, batch), a.attended.get(),
                             AttendedStride(context.spec));
}

void AddGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch, std::span<const IndexRange> blocks,
                AttentionSums& sums) {
  context.head_attention.Add(QueryRunsOf(batch), context.activations.queries.get(), blocks,
                             PackedBlocks(context, layer, batch), sums);
}

void FinishHeads(EngineContext& context, int64_t rows, const AttentionSums& sums) {
  context.head_attention.Finish(rows, sums, context.activations.attended.get(), AttendedStride(context.spec));
}

}  // namespace moestro
