#include <algorithm>
#include <cstring>
#include <limits>

#include "common/model/attention.h"
#include "common/model/rope.h"
#include "common/tensor/dtype.h"

namespace moestro {
namespace {

// One head of one sequence's rows: each KV block is expanded once for all of them.
class HeadOfRun {
 public:
  HeadOfRun(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
            WorkerScratch& scratch, const SequenceRun& run, int64_t head)
      : context_(context),
        spec_(context.spec),
        weights_(weights),
        layer_(layer),
        batch_(batch),
        scratch_(scratch),
        run_(run),
        head_(head) {}

  void Run() {
    const int64_t rows = run_.end - run_.begin;
    std::fill_n(scratch_.max_score.get(), rows, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch_.sum.get(), rows, 0.0f);
    std::fill_n(scratch_.value_sum.get(), rows * spec_.v_head_dim, 0.0f);
    for (int64_t row = run_.begin; row < run_.end; ++row) PrepareQuery(row);
    const int64_t last_position = batch_.rows[run_.end - 1].position;
    for (int64_t block = 0; block <= last_position / kPageTokens; ++block) {
      ExpandBlock(block, VisibleTokens(last_position, block));
      for (int64_t row = run_.begin; row < run_.end; ++row) AttendBlock(row, block);
    }
    for (int64_t row = run_.begin; row < run_.end; ++row) StoreValues(row);
  }

 private:
  int64_t expanded_width() const { return spec_.qk_nope_head_dim + spec_.v_head_dim; }

  float* Query(int64_t row) {
    return context_.activations.q.get() + (row * spec_.num_heads + head_) * spec_.qk_head_dim();
  }

  void PrepareQuery(int64_t row) {
    const Activations& a = context_.activations;
    const int64_t pairs = spec_.qk_rope_head_dim / 2;
    float* query = Query(row);
    RotatePairs(a.cosine.get() + row * pairs, a.sine.get() + row * pairs, pairs, query + spec_.qk_nope_head_dim);
    for (int64_t i = 0; i < spec_.qk_head_dim(); ++i) query[i] *= context_.softmax_scale;
  }

  // keys[t] = [key_up latent[t] ; rotated key[t]]; the values stay behind the keys in `expanded`.
  void ExpandBlock(int64_t block, int64_t tokens) {
    const uint16_t* cached = batch_.pages(run_.begin).Block(layer_, block);
    const int64_t begin = head_ * expanded_width();  // the kernel indexes its output by the row of the weights
    context_.kernels.linear(weights_.kv_b, cached, spec_.kv_dim(), tokens, scratch_.expanded.get() - begin,
                            expanded_width(), begin, begin + expanded_width());
    const int64_t nope = spec_.qk_nope_head_dim;
    for (int64_t t = 0; t < tokens; ++t) {
      float* key = scratch_.keys.get() + t * spec_.qk_head_dim();
      std::memcpy(key, scratch_.expanded.get() + t * expanded_width(), nope * sizeof(float));
      const uint16_t* rotated = cached + t * spec_.kv_dim() + spec_.kv_lora_rank;
      std::transform(rotated, rotated + spec_.qk_rope_head_dim, key + nope, FromBf16);
    }
  }

  void AttendBlock(int64_t row, int64_t block) {
    const int64_t tokens = VisibleTokens(batch_.rows[row].position, block);
    if (tokens <= 0) return;
    const int64_t i = row - run_.begin;
    context_.kernels.attend_f32({.query = Query(row),
                                 .key_dim = spec_.qk_head_dim(),
                                 .value_dim = spec_.v_head_dim,
                                 .tokens = tokens,
                                 .max_score = scratch_.max_score.get() + i,
                                 .sum = scratch_.sum.get() + i,
                                 .out = scratch_.value_sum.get() + i * spec_.v_head_dim},
                                scratch_.keys.get(), spec_.qk_head_dim(),
                                scratch_.expanded.get() + spec_.qk_nope_head_dim, expanded_width());
  }

  void StoreValues(int64_t row) {
    const int64_t i = row - run_.begin;
    float* mean = scratch_.value_sum.get() + i * spec_.v_head_dim;
    for (int64_t n = 0; n < spec_.v_head_dim; ++n) mean[n] /= scratch_.sum.get()[i];
    context_.kernels.to_bf16(mean, spec_.v_head_dim,
                             context_.activations.attended.get() + (row * spec_.num_heads + head_) * spec_.v_head_dim);
  }

  EngineContext& context_;
  const ModelSpec& spec_;
  const AttentionWeights& weights_;
  int64_t layer_;
  const CheckedBatch& batch_;
  WorkerScratch& scratch_;
  SequenceRun run_;
  int64_t head_;
};

}  // namespace

void AttendUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                      const CheckedBatch& batch) {
  const int64_t heads = context.spec.num_heads;
  context.pool.Run(static_cast<int64_t>(batch.runs.size()) * heads, [&](int64_t index, int worker) {
    HeadOfRun(context, weights, layer, batch, context.activations.workers[worker], batch.runs[index / heads],
              index % heads)
        .Run();
  });
}

}  // namespace moestro
