// The forward pass of one prompt, taken apart into modules whose weights are given when they run: for weights that are
// in memory for that moment only. All rows go through a module before the next one, in tiles that the activations hold;
// what a row carries from module to module (residual, norm, sums of experts: 10 * hidden bytes) is kept for all of
// them.
//
// It is the engine's own code on the same kernels: KV and logits have the bits that Engine::Forward gives, whatever the
// tiles and however the experts are cut.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/head.h"
#include "common/model/moe/moe.h"

namespace moestro::engine {

class PromptForward {  // one pass at a time, each function on one thread at a time
 public:
  struct Options {
    int64_t max_rows = 0;   // of one pass
    int64_t tile_rows = 0;  // rows that go through a module together
    bool parts = false;     // attention comes in parts
  };
  // Spec, kernels and pool must outlive it. REQUIRES a spec that CheckSpec accepts.
  PromptForward(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, const Options& options);
  ~PromptForward();

  int64_t max_rows() const;

  // A new pass: rows of one prompt, at most kLogitRows of which want logits. Without parts (below) they stand at
  // consecutive positions and everything before them is in the pages; with parts they may be several runs of positions,
  // each under a sequence index of its own. The spans must live until the pass ends. INVALID_ARGUMENT as
  // Engine::Forward.
  absl::Status Begin(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, model::MlaForm form);

  // Then, once each and in this order. Weights may go away when the function has returned.
  void Embed(const model::Embedding& embedding);
  //   For every layer: attention ...
  void Attention(int64_t layer, const model::AttentionWeights& weights);
  //   (or that in parts, see below)
  //   ... and a dense MLP; or the router, all experts in ascending id, and the shared expert (which may have no rows).
  void Dense(const model::FeedForwardWeights& weights);
  absl::Status Route(const model::FeedForwardWeights& weights);  // INTERNAL if scores are NaN
  void Experts(const model::ExpertSlice& slice);
  void SharedExpert(const model::MlpWeights& weights);
  //   Between layers: F32 [rows, hidden], what they add to and the final norm reads. The memory is the same in all
  //   passes.
  float* residuals() const;
  //   If rows want logits: the final norm, all slices of the head.
  void FinalNorm(const float* weights);
  void Head(const model::HeadSlice& slice);
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  // Attention in parts, where other ranks compute parts of the context: ProjectKv, then for every tile in
  // [0, attention_tiles()) BeginAttention, AttendTo for each part, FinishAttention. `kv` holds the layer that is being
  // computed and no other, for all positions.
  void ProjectKv(const model::AttentionWeights& weights, const kv::KvPages& kv);
  int64_t attention_tiles() const;
  void BeginAttention(int64_t tile, const model::AttentionWeights& weights);
  void AttendTo(int64_t tile, const model::AttentionWeights& weights, const kv::KvPages& kv,
                std::span<const IndexRange> blocks);
  void FinishAttention(int64_t tile, const model::AttentionWeights& weights);

  // For whoever computes the rows' experts elsewhere. After Route: what they read, BF16 [rows, hidden], and which they
  // are, [rows, experts_per_token].
  const uint16_t* expert_input() const;
  std::span<const model::ExpertChoice> choices() const;
  // In place of SharedExpert: RunSharedExpert, whenever there is time, then AddExperts, whose parts are what became of
  // the rows elsewhere, F32 [rows, hidden] each, to be added up in this order. It changes the first.
  void RunSharedExpert(const model::MlpWeights& weights);
  void AddExperts(const model::MlpWeights& shared, std::span<float* const> parts);
  // The slice's experts for any rows, as RunExperts (moe/moe.h).
  void Experts(const model::ExpertSlice& slice, const model::ExpertPlan& plan, const uint16_t* x, float* sums);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Memory that it takes.
int64_t PromptForwardBytes(const weights::ModelSpec& spec, int threads, const PromptForward::Options& options);

}  // namespace moestro::engine
