#include "common/engine/sim/sim_rank_kernels.h"

#include <algorithm>
#include <numeric>

#include "common/kv/format.h"
#include "common/model/attention/attention.h"
#include "common/roofline/traffic.h"

namespace moestro::engine {
namespace {

constexpr int64_t kBf16 = 2;  // bytes
constexpr int64_t kF32 = 4;

// A kernel that reads and writes so many bytes, and multiplies nothing.
device::Kernel Moves(const char* name, int64_t bytes) {
  return {.name = name, .cost = {.elementwise_bytes = static_cast<double>(bytes), .kernels = 1}, .run = {}};
}

// Pairs of a row in `rows` and a position in `positions` that it sees.
int64_t VisiblePairs(IndexRange rows, IndexRange positions) {
  int64_t pairs = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    pairs += std::clamp<int64_t>(row + 1 - positions.begin, 0, positions.size());
  }
  return pairs;
}

}  // namespace

int64_t SimRankKernels::ActivationBytes(const RankShare& share) const {
  return CudaActivations::Bytes(spec_, Sizes(share));
}

CudaSizes SimRankKernels::Sizes(const RankShare& share) const {
  return CudaSizes::OfShare(share, /*coded=*/false, costs_.activations == DType::kF8E4M3);
}

absl::Status SimRankKernels::Begin(const RankShare& share) {
  share_ = share;
  tile_rows_ = CudaActivations::TileRows(
      CudaActivations::WithSpare(spec_, Sizes(share), /*earlier_tokens=*/0, share.spare_bytes));
  int64_t pairs = 0;
  for (const IndexRange& rows : share.stripes) pairs += VisiblePairs(rows, {0, share.end});
  load_ = {.rows = static_cast<double>(share.own_rows()),
           .visible_pairs = static_cast<double>(pairs),
           .context = static_cast<double>(share.end),
           .routed_rows = static_cast<double>(share.all_rows()),
           .activations = costs_.activations};
  return absl::OkStatus();
}

device::KernelCost SimRankKernels::Cost(StepKind kind, std::span<const StagedModule> modules) const {
  const LayerStep step{.kind = kind, .layer = modules.empty() ? 0 : modules[0].module->layer};
  return StepCost(spec_, weights_, share_.form, load_, step, modules);
}

device::Kernel SimRankKernels::Whole(StepKind kind, std::span<const StagedModule> modules) const {
  return {.name = StepName(kind), .cost = Cost(kind, modules), .run = {}};
}

device::Kernel SimRankKernels::Embed() { return Whole(StepKind::kEmbed, {}); }
device::Kernel SimRankKernels::Dense(const StagedModule& dense) { return Whole(StepKind::kDense, {&dense, 1}); }
device::Kernel SimRankKernels::SharedExpert(const StagedModule& router) {
  return Whole(StepKind::kSharedExpert, {&router, 1});
}
device::Kernel SimRankKernels::Head(const StagedModule& slice) { return Whole(StepKind::kHead, {&slice, 1}); }

// All of the step's cost but attention itself, which is done in parts.
device::Kernel SimRankKernels::ProjectKv(const StagedModule& attention, uint16_t*) {
  device::KernelCost cost = Cost(StepKind::kAttention, {&attention, 1});
  cost.attention_flops = 0;
  return {.name = "project keys and values", .cost = cost, .run = {}};
}

device::Kernel SimRankKernels::BeginAttention(const StagedModule&, int64_t) {
  return {.name = "queries", .cost = {.kernels = 0}, .run = {}};
}

device::Kernel SimRankKernels::AttendTo(const StagedModule& attention, int64_t, const uint16_t*,
                                        std::vector<IndexRange> blocks) {
  int64_t pairs = 0;
  for (const IndexRange& rows : share_.stripes) {
    for (const IndexRange& part : blocks) {
      pairs += VisiblePairs(rows, {part.begin * kv::kPageTokens, part.end * kv::kPageTokens});
    }
  }
  const double flops = Cost(StepKind::kAttention, {&attention, 1}).attention_flops;
  return {.name = "attention",
          .cost = {.attention_flops = flops * static_cast<double>(pairs) / load_.visible_pairs, .kernels = 1},
          .run = {}};
}

// Merging: sums of one part more than once.
device::Kernel SimRankKernels::FinishAttention(const StagedModule&, int64_t) {
  const int64_t width = model::SumWidth(spec_, share_.form);
  return Moves("attended", share_.ranks() * 2 * share_.own_rows() * spec_.num_heads * width * kF32);
}

device::Kernel SimRankKernels::Route(const StagedModule& router, uint16_t*, model::ExpertChoice*) {
  return Whole(StepKind::kRoute, {&router, 1});
}

device::Kernel SimRankKernels::Clear(std::span<float> sums) {
  return Moves("clear", static_cast<int64_t>(sums.size_bytes()));
}

device::Kernel SimRankKernels::SortRows(int64_t rows, int64_t chosen) {
  if (costs_.cuts_rows) load_.expert_tiles = CeilDiv(rows, RoutedTileRows(spec_, tile_rows_, chosen));
  return {.name = "sort", .cost = roofline::SortCost(static_cast<double>(rows), chosen, load_.expert_tiles), .run = {}};
}

device::Kernel SimRankKernels::Sort(std::span<const model::ExpertChoice> choices, int64_t per_row) {
  const int64_t rows = std::ssize(choices) / per_row;
  load_.routed_rows = static_cast<double>(rows);
  return SortRows(rows, per_row);
}

device::Kernel SimRankKernels::Experts(std::span<const StagedModule> experts, const uint16_t*, float*) {
  return Whole(StepKind::kExperts, experts);
}

// SharedExpert's cost has the addition of one array to the residual. Beside it, what the shared expert made is written
// and read; several parts are read, and their sum is written.
device::Kernel SimRankKernels::AddExperts(const StagedModule&, std::vector<float*> parts) {
  const int64_t arrays = 2 + (parts.size() > 1 ? std::ssize(parts) + 1 : 0);
  return Moves("add up", arrays * share_.own_rows() * spec_.hidden_size * kF32);
}

device::Kernel SimRankKernels::CountPairs(const model::ExpertChoice*) {
  return Moves("count",
               share_.own_rows() * spec_.experts_per_token * static_cast<int64_t>(sizeof(model::ExpertChoice)));
}

PairLists SimRankKernels::ExpectedPairs() const {
  const std::vector<int64_t> pairs = roofline::EvenPairs(spec_, share_.parts, share_.rank_rows);
  const auto first = pairs.begin() + share_.rank * share_.ranks();
  PairLists lists{{first, first + share_.ranks()}, 0};
  lists.total = std::accumulate(lists.counts.begin(), lists.counts.end(), int64_t{0});
  return lists;
}

device::Kernel SimRankKernels::Pack(const uint16_t*, const model::ExpertChoice*, uint16_t*, int32_t*) {
  return Moves("pack", 2 * ExpectedPairs().total * spec_.hidden_size * kBf16);
}

device::Kernel SimRankKernels::SortPairs(std::span<const int32_t> experts) { return SortRows(std::ssize(experts), 1); }

device::Kernel SimRankKernels::CombinePairs(const model::ExpertChoice*, const float*, float*) {
  return Moves("weigh", (ExpectedPairs().total + share_.own_rows()) * spec_.hidden_size * kF32);
}

device::Kernel SimRankKernels::Copy(uint8_t*, const uint8_t*, int64_t bytes) { return Moves("copy", 2 * bytes); }

}  // namespace moestro::engine
