#include <algorithm>
#include <limits>

#include "common/base/math.h"
#include "common/model/attention.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

// Some rows times some heads: at most kQueriesPerTile pairs, pair = (head - head_begin) * rows + (row - row_begin).
struct Tile {
  int64_t row_begin, rows;
  int64_t head_begin, heads;
};

class AbsorbedTile {
 public:
  AbsorbedTile(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
               WorkerScratch& scratch, const Tile& tile)
      : context_(context),
        spec_(context.spec),
        weights_(weights),
        layer_(layer),
        batch_(batch),
        scratch_(scratch),
        tile_(tile) {}

  void Run() {
    for (int64_t head = 0; head < tile_.heads; ++head) PrepareQueries(head);
    AttendBlocks();
    for (int64_t head = 0; head < tile_.heads; ++head) ProjectValues(head);
  }

 private:
  int64_t pairs() const { return tile_.heads * tile_.rows; }

  // query[pair] = softmax_scale * [key_up^T q_nope ; rotated q_rope]
  void PrepareQueries(int64_t head) {
    const Activations& a = context_.activations;
    const int64_t nope = spec_.qk_nope_head_dim;
    const int64_t latent = spec_.kv_lora_rank;
    const int64_t rope_pairs = spec_.qk_rope_head_dim / 2;
    const int64_t global_head = tile_.head_begin + head;
    float* queries = scratch_.query.get() + head * tile_.rows * spec_.kv_dim();
    for (int64_t i = 0; i < tile_.rows; ++i) {
      const int64_t row = tile_.row_begin + i;
      const float* q = a.q.get() + (row * spec_.num_heads + global_head) * spec_.qk_head_dim();
      context_.kernels.to_bf16(q, nope, scratch_.narrow.get() + i * nope);
      float* rotated = queries + i * spec_.kv_dim() + latent;
      std::copy_n(q + nope, spec_.qk_rope_head_dim, rotated);
      RotatePairs(a.cosine.get() + row * rope_pairs, a.sine.get() + row * rope_pairs, rope_pairs, rotated);
    }
    const int64_t begin = global_head * latent;  // the kernel indexes its output by the row of the weights
    context_.kernels.linear(weights_.key_transposed, scratch_.narrow.get(), nope, tile_.rows, queries - begin,
                            spec_.kv_dim(), begin, begin + latent);
    for (int64_t i = 0; i < tile_.rows * spec_.kv_dim(); ++i) queries[i] *= context_.softmax_scale;
  }

  // Block by block for all pairs, so that a block is read from memory once per tile.
  void AttendBlocks() {
    std::fill_n(scratch_.max_score.get(), pairs(), -std::numeric_limits<float>::infinity());
    std::fill_n(scratch_.sum.get(), pairs(), 0.0f);
    std::fill_n(scratch_.latent_sum.get(), pairs() * spec_.kv_lora_rank, 0.0f);
    int64_t last_position = 0;
    for (const EngineRow& row : batch_.rows.subspan(tile_.row_begin, tile_.rows)) {
      last_position = std::max<int64_t>(last_position, row.position);
    }
    for (int64_t block = 0; block <= last_position / kPageTokens; ++block) {
      for (int64_t i = 0; i < tile_.rows; ++i) AttendBlock(i, block);
    }
  }

  void AttendBlock(int64_t i, int64_t block) {
    const int64_t row = tile_.row_begin + i;
    const int64_t tokens = VisibleTokens(batch_.rows[row].position, block);
    if (tokens <= 0) return;
    const uint16_t* cached = batch_.pages(row).Block(layer_, block);
    for (int64_t pair = i; pair < pairs(); pair += tile_.rows) {
      context_.kernels.attend_bf16({.query = scratch_.query.get() + pair * spec_.kv_dim(),
                                    .key_dim = spec_.kv_dim(),
                                    .value_dim = spec_.kv_lora_rank,
                                    .tokens = tokens,
                                    .max_score = scratch_.max_score.get() + pair,
                                    .sum = scratch_.sum.get() + pair,
                                    .out = scratch_.latent_sum.get() + pair * spec_.kv_lora_rank},
                                   cached, cached, spec_.kv_dim());
    }
  }

  // attended = value_up (latent_sum / sum)
  void ProjectValues(int64_t head) {
    const int64_t latent = spec_.kv_lora_rank;
    const int64_t width = spec_.v_head_dim;
    const int64_t global_head = tile_.head_begin + head;
    for (int64_t i = 0; i < tile_.rows; ++i) {
      const int64_t pair = head * tile_.rows + i;
      float* mean = scratch_.latent_sum.get() + pair * latent;
      for (int64_t n = 0; n < latent; ++n) mean[n] /= scratch_.sum.get()[pair];
      context_.kernels.to_bf16(mean, latent, scratch_.narrow.get() + i * latent);
    }
    const int64_t begin = global_head * (spec_.qk_nope_head_dim + width) + spec_.qk_nope_head_dim;
    float* values = scratch_.value_sum.get();
    context_.kernels.linear(weights_.kv_b, scratch_.narrow.get(), latent, tile_.rows, values - begin, width, begin,
                            begin + width);
    for (int64_t i = 0; i < tile_.rows; ++i) {
      const int64_t row = tile_.row_begin + i;
      context_.kernels.to_bf16(values + i * width, width,
                               context_.activations.attended.get() + (row * spec_.num_heads + global_head) * width);
    }
  }

  EngineContext& context_;
  const ModelSpec& spec_;
  const AttentionWeights& weights_;
  int64_t layer_;
  const CheckedBatch& batch_;
  WorkerScratch& scratch_;
  Tile tile_;
};

// With few rows a tile takes several heads, to share the reading of the KV blocks; but never so many that fewer tiles
// than this many per worker remain.
constexpr int64_t kTilesPerWorker = 4;

}  // namespace

void AttendAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  const int64_t all_heads = context.spec.num_heads;
  const int64_t tile_rows = std::min(batch.size(), kQueriesPerTile);
  const int64_t row_tiles = CeilDiv(batch.size(), tile_rows);
  const int64_t balanced_heads = all_heads * row_tiles / (kTilesPerWorker * context.pool.threads());
  const int64_t tile_heads = std::clamp<int64_t>(balanced_heads, 1, std::min(all_heads, kQueriesPerTile / tile_rows));
  const int64_t head_tiles = CeilDiv(all_heads, tile_heads);
  context.pool.Run(row_tiles * head_tiles, [&](int64_t index, int worker) {
    const int64_t row_begin = index / head_tiles * tile_rows;
    const int64_t head_begin = index % head_tiles * tile_heads;
    const Tile tile{row_begin, std::min(tile_rows, batch.size() - row_begin), head_begin,
                    std::min(tile_heads, all_heads - head_begin)};
    AbsorbedTile(context, weights, layer, batch, context.activations.workers[worker], tile).Run();
  });
}

}  // namespace moestro
