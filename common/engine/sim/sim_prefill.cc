#include "common/engine/sim/sim_prefill.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/roofline/work_count.h"

namespace moestro::engine {
namespace {

using device::KernelCost;

// Rows that each of these experts gets on average.
double RowsOfAnExpert(const weights::ModelSpec& spec, const roofline::StepLoad& load, int64_t layer,
                      std::span<const StagedModule> modules) {
  const double mean =
      load.routed_rows * static_cast<double>(spec.experts_per_token) / static_cast<double>(spec.num_experts);
  if (load.expert_spread == 0) return mean;
  // Multiples of the golden ratio cover [0, 1) evenly, and neighbours are no more alike than others.
  constexpr double kGoldenRatio = std::numbers::phi;
  constexpr double kWidthOverDeviation = 2 * std::numbers::sqrt3;  // of an even distribution
  double sum = 0;
  for (const StagedModule& staged : modules) {
    const double turns = kGoldenRatio * static_cast<double>(staged.module->index + layer * spec.num_experts);
    sum += 1 + kWidthOverDeviation * load.expert_spread * (turns - std::floor(turns) - 0.5);
  }
  return mean * sum / static_cast<double>(modules.size());
}

}  // namespace

KernelCost StepCost(const weights::ModelSpec& spec, const model::ModelWeights& weights, model::MlaForm form,
                    const roofline::StepLoad& load, const LayerStep& step, std::span<const StagedModule> modules) {
  const model::LayerWeights* layer = step.layer < std::ssize(weights.layers) ? &weights.layers[step.layer] : nullptr;
  switch (step.kind) {
    case StepKind::kEmbed:
      return roofline::ElementwiseCost(load.rows, 2 * spec.hidden_size);
    case StepKind::kAttention:
      return roofline::AttentionCost(spec, layer->attention, form, load);
    case StepKind::kDense:
    case StepKind::kSharedExpert:
      return roofline::MlpCost(spec, layer->feed_forward.dense, load);
    case StepKind::kRoute:
      return roofline::RouterCost(spec, load);
    case StepKind::kExperts:
      return roofline::ExpertsCost(spec, layer->feed_forward.experts.front(), static_cast<double>(modules.size()),
                                   RowsOfAnExpert(spec, load, step.layer, modules), load,
                                   load.adds_at_once && modules.back().module->index + 1 == spec.num_experts);
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;               // what they launch is no cost of the step alone
    case StepKind::kHead:  // of a row or few
      return {.memory_bytes = static_cast<double>(modules[0].module->image.bytes), .kernels = 1};
  }
  return {.kernels = 0};
}

roofline::StepLoad PassLoad(const PromptRun& run, int64_t pass_index) {
  const IndexRange pass = run.PassRows(pass_index);
  const auto rows = static_cast<double>(pass.size());
  const auto before = static_cast<double>(run.rows[pass.begin].position);
  return {.rows = rows,
          .visible_pairs = roofline::VisiblePairs(before, rows),
          .context = before + rows,
          .routed_rows = rows};
}

int64_t SimPrefill::ActivationBytes(int64_t pass_rows) const { return CudaActivations::Bytes(spec_, Sizes(pass_rows)); }

CudaSizes SimPrefill::Sizes(int64_t pass_rows) const {
  return CudaSizes::OfPass(pass_rows, /*coded=*/false, costs_.activations == DType::kF8E4M3);
}

absl::Status SimPrefill::Begin(const PromptRun& run) {
  run_ = run;
  tile_rows_ = CudaActivations::TileRows(
      CudaActivations::WithSpare(spec_, Sizes(run.max_pass_rows()), run.most_tokens_before(), run.spare_bytes));
  return absl::OkStatus();
}

absl::Status SimPrefill::Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                                const std::atomic<bool>&) {
  roofline::StepLoad load = PassLoad(run_, step.pass);
  load.expert_spread = costs_.expert_spread;
  load.activations = costs_.activations;
  if (costs_.cuts_rows) {
    load.expert_tiles = CeilDiv(run_.PassRows(step.pass).size(), tile_rows_);
    load.adds_at_once = load.expert_tiles == 1;
  }
  MOE_RETURN_IF_ERROR(stream.Launch(
      {.name = StepName(step.kind), .cost = StepCost(spec_, weights_, run_.form, load, step, modules), .run = {}}));
  if (step.kind != StepKind::kRoute) return absl::OkStatus();
  return stream.Launch(
      {.name = "sort", .cost = roofline::SortCost(load.rows, spec_.experts_per_token, load.expert_tiles), .run = {}});
}

absl::Status SimPrefill::Store(const LayerStep& step, device::Stream& stream) {
  constexpr int64_t kBytes = 2;  // BF16
  return stream.CopyToHost(nullptr, nullptr, run_.PassRows(step.pass).size() * spec_.kv_dim() * kBytes);
}

}  // namespace moestro::engine
