#include <algorithm>
#include <vector>

#include "common/model/attention.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

// At most kAbsorbedRows rows of the batch.
class AbsorbedRows {
 private:
  struct SequenceRuns {
    std::vector<QueryRun> runs;
    std::vector<const KvPages*> pages;  // of each
  };
  SequenceRuns Sequences() const {
    SequenceRuns sequences;
    for (const SequenceRun& run : batch_.runs) {
      const int64_t first = std::max(run.begin, begin_);
      const int64_t last = std::min(run.end, begin_ + rows_);
      if (first >= last) continue;
      sequences.runs.push_back({first - begin_, last - first, batch_.rows[first].position});
      sequences.pages.push_back(&batch_.pages(first));
    }
    return sequences;
  }

  // The cached vector is the key of all heads, its latent part their value.
  auto Blocks(const SequenceRuns& sequences) const {
    return [this, &sequences](const FlashAttention::BlockRequest& request) {
      const KvPages& cache = *sequences.pages[request.run];
      const uint16_t* cached = cache.Block(layer_, request.block);
      const uint16_t* next = cache.Block(layer_, request.next_block);
      return KvBlock{.keys = cached,
                     .key_stride = spec_.kv_dim(),
                     .values = cached,
                     .value_stride = spec_.kv_dim(),
                     .next = reinterpret_cast<const uint8_t*>(next),
                     .next_bytes = kPageTokens * spec_.kv_dim() * 2};
    };
  }

 public:
  AbsorbedRows(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
               int64_t begin, int64_t rows)
      : context_(context),
        spec_(context.spec),
        a_(context.activations),
        weights_(weights),
        layer_(layer),
        batch_(batch),
        begin_(begin),
        rows_(rows) {}

  void Run() {
    Queries();
    const SequenceRuns sequences = Sequences();
    context_.absorbed_attention->Run(sequences.runs, a_.queries.get(), Blocks(sequences), a_.latents.get(),
                                     LatentStride());
    Values();
  }

  void Queries() {
    context_.pool.Run(spec_.num_heads, [&](int64_t head, int worker) { AbsorbQueries(head, a_.workers[worker]); });
  }
  void Add(std::span<const IndexRange> blocks, AttentionSums& sums) {
    const SequenceRuns sequences = Sequences();
    context_.absorbed_attention->Add(sequences.runs, a_.queries.get(), blocks, Blocks(sequences), sums);
  }
  void Finish(const AttentionSums& sums) {
    context_.absorbed_attention->Finish(rows_, sums, a_.latents.get(), LatentStride());
    Values();
  }

 private:
  // queries[row, head] = [key_up^T q_nope ; rotated q_rope]
  void AbsorbQueries(int64_t head, WorkerScratch& scratch) {
    const int64_t nope = spec_.qk_nope_head_dim;
    const int64_t latent = spec_.kv_lora_rank;
    for (int64_t i = 0; i < rows_; ++i)
      context_.kernels.to_bf16(Query(i, head), nope, scratch.head_narrow.get() + i * nope);
    const int64_t first = head * latent;  // the kernel indexes its output by the row of the weights
    context_.kernels.linear(weights_.key_transposed, scratch.head_narrow.get(), nope, rows_, scratch.head.get() - first,
                            latent, first, first + latent);
    for (int64_t i = 0; i < rows_; ++i) {
      uint16_t* query = a_.queries.get() + (i * spec_.num_heads + head) * spec_.kv_dim();
      context_.kernels.to_bf16(scratch.head.get() + i * latent, latent, query);
      RotateQuery(context_, begin_ + i, Query(i, head) + nope);
      context_.kernels.to_bf16(Query(i, head) + nope, spec_.qk_rope_head_dim, query + latent);
    }
  }

  float* Query(int64_t i, int64_t head) const {
    return a_.q.get() + ((begin_ + i) * spec_.num_heads + head) * spec_.qk_head_dim();
  }

  int64_t LatentStride() const { return spec_.num_heads * spec_.kv_lora_rank; }

  void Values() {
    context_.pool.Run(spec_.num_heads, [&](int64_t head, int worker) { ProjectValues(head, a_.workers[worker]); });
  }

  // attended = value_up latents
  void ProjectValues(int64_t head, WorkerScratch& scratch) {
    const int64_t latent = spec_.kv_lora_rank;
    const int64_t width = spec_.v_head_dim;
    const int64_t first = head * (spec_.qk_nope_head_dim + width) + spec_.qk_nope_head_dim;
    float* values = scratch.head.get();
    context_.kernels.linear(weights_.kv_b, a_.latents.get() + head * latent, spec_.num_heads * latent, rows_,
                            values - first, width, first, first + width);
    for (int64_t i = 0; i < rows_; ++i) {
      context_.kernels.to_bf16(values + i * width, width,
                               a_.attended.get() + (begin_ + i) * RowStride(spec_.num_heads * width) + head * width);
    }
  }

  EngineContext& context_;
  const ModelSpec& spec_;
  Activations& a_;
  const AttentionWeights& weights_;
  int64_t layer_;
  const CheckedBatch& batch_;
  int64_t begin_;
  int64_t rows_;
};

}  // namespace

void AttendAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  for (int64_t begin = 0; begin < batch.size(); begin += kAbsorbedRows) {
    AbsorbedRows(context, weights, layer, batch, begin, std::min(kAbsorbedRows, batch.size() - begin)).Run();
  }
}

void AbsorbQueries(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch) {
  AbsorbedRows(context, weights, 0, batch, 0, batch.size()).Queries();
}

void AddAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                 std::span<const IndexRange> blocks, AttentionSums& sums) {
  AbsorbedRows(context, weights, layer, batch, 0, batch.size()).Add(blocks, sums);
}

void FinishAbsorbed(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                    const AttentionSums& sums) {
  AbsorbedRows(context, weights, 0, batch, 0, batch.size()).Finish(sums);
}

}  // namespace moestro
