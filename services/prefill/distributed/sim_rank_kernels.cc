#include "services/prefill/distributed/sim_rank_kernels.h"

#include <algorithm>
#include <numeric>

#include "common/kv/format.h"
#include "common/model/attention.h"
#include "common/model/prompt_forward.h"
#include "services/prefill/distributed/traffic.h"
#include "services/prefill/stream/simulate.h"

namespace moestro {
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

int64_t SimRankKernels::ActivationBytes(const RankRun& run) const {
  const int64_t own_rows = run.own_rows();
  return PromptForwardBytes(spec_, /*threads=*/0,
                            {.max_rows = own_rows, .tile_rows = std::min(kGpuTileRows, own_rows), .parts = true});
}

absl::Status SimRankKernels::Begin(const RankRun& run) {
  run_ = run;
  load_ = {.rows = static_cast<double>(run.own_rows()),
           .visible_pairs = static_cast<double>(run.split->VisiblePairs(run.rank)),
           .context = static_cast<double>(run.split->end()),
           .routed_rows = static_cast<double>(run.all_rows())};
  return absl::OkStatus();
}

device::KernelCost SimRankKernels::Cost(const Step& step, std::span<const StagedModule> modules) const {
  return StepCost(spec_, weights_, run_.form, load_, step, modules);
}

device::Kernel SimRankKernels::Plain(const Step& step, std::span<const StagedModule> modules) {
  return {.name = StepName(step.kind), .cost = Cost(step, modules), .run = {}};
}

// All of the step's cost but attention itself, which is done in parts.
device::Kernel SimRankKernels::ProjectKv(const Step& step, const StagedModule& attention, uint16_t*) {
  device::KernelCost cost = Cost(step, {&attention, 1});
  cost.attention_flops = 0;
  return {.name = "project keys and values", .cost = cost, .run = {}};
}

device::Kernel SimRankKernels::BeginAttention(const Step&, const StagedModule&, int64_t) {
  return {.name = "queries", .cost = {.kernels = 0}, .run = {}};
}

device::Kernel SimRankKernels::AttendTo(const Step& step, const StagedModule& attention, int64_t, const uint16_t*,
                                        std::vector<IndexRange> blocks) {
  int64_t pairs = 0;
  for (const IndexRange& rows : run_.split->Stripes(run_.rank)) {
    for (const IndexRange& part : blocks) {
      pairs += VisiblePairs(rows, {part.begin * kPageTokens, part.end * kPageTokens});
    }
  }
  const double flops = Cost(step, {&attention, 1}).attention_flops;
  return {.name = "attention",
          .cost = {.attention_flops = flops * static_cast<double>(pairs) / load_.visible_pairs, .kernels = 1},
          .run = {}};
}

// Merging: sums of one part more than once.
device::Kernel SimRankKernels::FinishAttention(const Step&, const StagedModule&, int64_t) {
  const int64_t width = SumWidth(spec_, run_.form);
  return Moves("attended", run_.ranks() * 2 * run_.own_rows() * spec_.num_heads * width * kF32);
}

device::Kernel SimRankKernels::Route(const Step& step, const StagedModule& router, uint16_t*, ExpertChoice*) {
  return {.name = StepName(step.kind), .cost = Cost(step, {&router, 1}), .run = {}};
}

device::Kernel SimRankKernels::Sort(std::span<const ExpertChoice> choices, int64_t, std::span<float> sums) {
  return Moves("sort", static_cast<int64_t>(2 * choices.size_bytes() + sums.size_bytes()));
}

device::Kernel SimRankKernels::Experts(const Step& step, std::span<const StagedModule> experts, const uint16_t*,
                                       float*) {
  return {.name = StepName(step.kind), .cost = Cost(step, experts), .run = {}};
}

device::Kernel SimRankKernels::AddUp(std::vector<const float*> parts) {
  return Moves("add up", (std::ssize(parts) + 1) * run_.own_rows() * spec_.hidden_size * kF32);
}

device::Kernel SimRankKernels::CountPairs(const ExpertChoice*) {
  return Moves("count", run_.own_rows() * spec_.experts_per_token * static_cast<int64_t>(sizeof(ExpertChoice)));
}

PairLists SimRankKernels::ExpectedPairs() const {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < run_.ranks(); ++rank) rows.push_back(run_.split->Rows(rank));
  const std::vector<int64_t> pairs = EvenPairs(spec_, rows);
  const auto first = pairs.begin() + run_.rank * run_.ranks();
  PairLists lists{{first, first + run_.ranks()}, 0};
  lists.total = std::accumulate(lists.counts.begin(), lists.counts.end(), int64_t{0});
  return lists;
}

device::Kernel SimRankKernels::Pack(const uint16_t*, const ExpertChoice*, uint16_t*, int32_t*) {
  return Moves("pack", 2 * ExpectedPairs().total * spec_.hidden_size * kBf16);
}

device::Kernel SimRankKernels::SortPairs(std::span<const int32_t> experts, std::span<float> sums) {
  return Moves("sort", static_cast<int64_t>(2 * experts.size_bytes() + sums.size_bytes()));
}

device::Kernel SimRankKernels::WeighPairs(const ExpertChoice*, const float*) {
  return Moves("weigh", (ExpectedPairs().total + run_.own_rows()) * spec_.hidden_size * kF32);
}

device::Kernel SimRankKernels::Copy(uint8_t*, const uint8_t*, int64_t bytes) { return Moves("copy", 2 * bytes); }

}  // namespace moestro
