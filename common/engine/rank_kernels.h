// What a rank's device computes between two exchanges: one implementation for every kind of kernel.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/base/proportional_parts.h"
#include "common/device/device.h"
#include "common/engine/weight_image.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"
#include "common/model/moe/gating.h"
#include "common/roofline/traffic.h"

namespace moestro::engine {

// Ranks that share a prompt at most.
inline constexpr int kMaxRanksOfPrompt = 8;

// A rank's share of a prompt. What it refers to lives until the run ends.
struct RankShare {
  static constexpr int kStripes = 2;

  std::span<const model::EngineRow> rows;    // stripe by stripe; those of a stripe have its number as sequence
  std::array<IndexRange, kStripes> stripes;  // the rows' positions, ascending; may be empty
  int64_t end = 0;                           // of the prompt's positions; what is cached before is among them
  // Of the ring's parts, the positions that are attended to at once: whole KV blocks, as many as a rank has whose share
  // is no larger. So a small device needs no memory for a large one's part.
  int64_t part_tokens = 0;
  int rank = 0;
  ProportionalParts parts;         // a part for every rank
  std::vector<int64_t> rank_rows;  // of every rank
  kv::KvPages pages;               // of the prompt, for sizes only
  model::MlaForm form = model::MlaForm::kUnabsorbed;
  int64_t spare_bytes = 0;  // of device memory, beside ActivationBytes: the kernels may take them

  int ranks() const { return static_cast<int>(rank_rows.size()); }
  int64_t own_rows() const { return std::ssize(rows); }
  int64_t all_rows() const { return std::accumulate(rank_rows.begin(), rank_rows.end(), int64_t{0}); }
  // Experts that a rank has, ascending with the rank.
  IndexRange Experts(const weights::ModelSpec& spec, int of_rank) const {
    return roofline::RankExperts(spec, parts, of_rank);
  }
};

// Tokens and their experts, a pair for each: rows of standard EP.
struct PairLists {
  std::vector<int64_t> counts;  // of each rank: those whose expert it has
  int64_t total = 0;
};

// All functions give kernels for the compute stream, to be launched in the order of the calls; pointers are device
// memory. Of `modules`, the weights are on the device when the kernel runs.
class RankKernels {
 public:
  virtual ~RankKernels() = default;

  // Device memory for a rank's own rows and for what passes through its experts; without what exchanges need.
  virtual int64_t ActivationBytes(const RankShare& share) const = 0;
  // UNIMPLEMENTED names the form that the kernels have in place of this one.
  virtual absl::Status CheckForm(model::MlaForm form) const = 0;
  // Checks the form.
  virtual absl::Status Begin(const RankShare& share) = 0;
  // Nothing of the run is on a stream any more.
  virtual void End() = 0;

  // Of the rank's rows. The shared expert is in the router's module.
  virtual device::Kernel Embed() = 0;
  virtual device::Kernel Dense(const StagedModule& dense) = 0;
  // What it makes of them is kept until AddExperts.
  virtual device::Kernel SharedExpert(const StagedModule& router) = 0;
  // What they carry from layer to layer: F32 [rows, hidden], device memory of the run.
  virtual float* residuals() const = 0;
  virtual device::Kernel Head(const StagedModule& slice) = 0;
  virtual absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;

  // Attention, in tiles (of the rank's rows, or of heads) and parts of the context, a tile at a time. kv: BF16
  // [positions, kv_dim] of the layer, from position 0 on.
  virtual device::Kernel ProjectKv(const StagedModule& attention, uint16_t* kv) = 0;
  virtual int64_t attention_tiles() const = 0;
  virtual device::Kernel BeginAttention(const StagedModule& attention, int64_t tile) = 0;
  // blocks: KV blocks, in this order.
  virtual device::Kernel AttendTo(const StagedModule& attention, int64_t tile, const uint16_t* kv,
                                  std::vector<IndexRange> blocks) = 0;
  virtual device::Kernel FinishAttention(const StagedModule& attention, int64_t tile) = 0;

  // Experts. x: BF16 [rows, hidden]; choices: [rows, experts_per_token]; sums: F32 [rows, hidden].
  //
  // The rank's rows: their experts, and what these read.
  virtual device::Kernel Route(const StagedModule& router, uint16_t* x, model::ExpertChoice* choices) = 0;
  virtual device::Kernel Clear(std::span<float> sums) = 0;
  // Sorts rows, of `per_row` choices each, by this rank's experts, for Experts.
  virtual device::Kernel Sort(std::span<const model::ExpertChoice> choices, int64_t per_row) = 0;
  // Adds what the staged experts make of the rows that were sorted last, in ascending id.
  virtual device::Kernel Experts(std::span<const StagedModule> experts, const uint16_t* x, float* sums) = 0;
  // The layer's end: the rank's residuals += all parts of its rows, added up in this order, and the shared expert's.
  // The first part changes.
  virtual device::Kernel AddExperts(const StagedModule& router, std::vector<float*> parts) = 0;

  // Standard EP. The rank's rows, once for each of their experts, by rank and in that as the kernels like: x and the
  // expert's id. Pairs: how many, known when CountPairs is done; where kernels are only simulated, how many are
  // expected.
  virtual device::Kernel CountPairs(const model::ExpertChoice* choices) = 0;
  virtual absl::StatusOr<PairLists> Pairs() const = 0;
  virtual device::Kernel Pack(const uint16_t* x, const model::ExpertChoice* choices, uint16_t* pair_x,
                              int32_t* pair_experts) = 0;
  virtual device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;
  // As Sort, of pairs: a row each, of weight 1.
  virtual device::Kernel SortPairs(std::span<const int32_t> experts) = 0;
  // totals, F32 [rows, hidden] = each row's pairs, weighted, in ascending id. sums: F32 [pairs, hidden], as Pack's.
  virtual device::Kernel CombinePairs(const model::ExpertChoice* choices, const float* sums, float* totals) = 0;
};

}  // namespace moestro::engine
