#include "common/model/feed_forward.h"

#include <algorithm>
#include <cstring>

#include "common/base/status.h"
#include "common/model/expert_plan.h"
#include "common/model/linear.h"

namespace moestro {
namespace {

class FeedForward {
 public:
  FeedForward(EngineContext& context, const FeedForwardWeights& weights, int64_t rows)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        a_(context.activations),
        weights_(weights),
        rows_(rows) {}

  absl::Status Run() {
    NormAndRoute();
    if (!weights_.experts.empty()) {
      for (int64_t row = 0; row < rows_; ++row) MOE_RETURN_IF_ERROR(a_.row_status[row]);
      plan_ = PlanExperts(std::span(a_.choices).first(rows_ * spec_.experts_per_token), spec_.experts_per_token,
                          spec_.num_experts);
      Gather();
    }
    GateAndUp();
    Down();
    return absl::OkStatus();
  }

 private:
  void NormAndRoute() {
    const int64_t hidden = spec_.hidden_size;
    context_.pool.Run(rows_, [&](int64_t row, int) {
      kernels_.rms_norm(a_.residual.get() + row * hidden, weights_.norm, hidden, static_cast<float>(spec_.rms_norm_eps),
                        a_.normed.get() + row * hidden, a_.normed_narrow.get() + row * hidden);
      if (!weights_.experts.empty()) Route(row);
    });
  }

  // Reads the F32 form of the input: a choice between experts is not continuous in it.
  void Route(int64_t row) {
    float* logits = a_.router_logits.get() + row * spec_.num_experts;
    kernels_.router_logits(weights_.router, spec_.num_experts, spec_.hidden_size,
                           a_.normed.get() + row * spec_.hidden_size, logits);
    a_.row_status[row] =
        ChooseExperts(spec_, std::span(logits, spec_.num_experts), std::span(weights_.bias, spec_.num_experts),
                      std::span(a_.choices).subspan(row * spec_.experts_per_token, spec_.experts_per_token));
  }

  void Gather() {
    const int64_t hidden = spec_.hidden_size;
    context_.pool.Run(static_cast<int64_t>(plan_.routed.size()), [&](int64_t i, int) {
      std::memcpy(a_.gathered.get() + i * hidden, a_.normed_narrow.get() + plan_.routed[i].row * hidden,
                  hidden * sizeof(uint16_t));
    });
  }

  LinearInput GatheredRows(const ExpertRows& rows) const {
    return {a_.gathered.get() + rows.begin * spec_.hidden_size, spec_.hidden_size, rows.count};
  }
  LinearInput AllRows() const { return {a_.normed_narrow.get(), spec_.hidden_size, rows_}; }
  uint16_t* RoutedGated(const ExpertRows& rows) const {
    return a_.routed_gated.get() + rows.begin * spec_.moe_intermediate_size;
  }

  // gated = silu(gate x) * up x, one task per expert and row group; the dense MLP or shared expert comes last.
  void GateAndUp() {
    const int64_t groups = CeilGroups(spec_.moe_intermediate_size);
    const int64_t routed_tasks = static_cast<int64_t>(plan_.experts.size()) * groups;
    context_.pool.Run(routed_tasks + CeilGroups(weights_.always.gate.rows), [&](int64_t task, int worker) {
      WorkerScratch& scratch = a_.workers[worker];
      if (task >= routed_tasks) {
        GatedGroup(weights_.always, AllRows(), task - routed_tasks, scratch, a_.always_gated.get());
        return;
      }
      const ExpertRows& rows = plan_.experts[task / groups];
      GatedGroup(weights_.experts[rows.expert], GatheredRows(rows), task % groups, scratch, RoutedGated(rows));
    });
  }

  static int64_t CeilGroups(int64_t rows) { return PaddedRows(rows) / kRowGroup; }

  void GatedGroup(const MlpWeights& mlp, const LinearInput& input, int64_t group, WorkerScratch& scratch,
                  uint16_t* gated) {
    LinearGroup(kernels_, mlp.gate, input, group, scratch.group_a.get());
    LinearGroup(kernels_, mlp.up, input, group, scratch.group_b.get());
    for (int64_t i = 0; i < input.rows; ++i) {
      kernels_.silu_mul(scratch.group_a.get() + i * kRowGroup, scratch.group_b.get() + i * kRowGroup,
                        GroupWidth(mlp.gate, group), gated + i * mlp.gate.rows + group * kRowGroup);
    }
  }

  // One task owns 64 numbers of every row's sum, so the order of the experts is fixed without any further barrier.
  void Down() {
    context_.pool.Run(CeilGroups(spec_.hidden_size), [&](int64_t group, int worker) {
      const int64_t width = std::min(kRowGroup, spec_.hidden_size - group * kRowGroup);
      const WorkerScratch& scratch = a_.workers[worker];
      float* output = scratch.group_a.get();
      float* sum = scratch.group_b.get();
      std::fill_n(sum, rows_ * kRowGroup, 0.0f);
      for (const ExpertRows& rows : plan_.experts) {
        LinearGroup(kernels_, weights_.experts[rows.expert].down,
                    {RoutedGated(rows), spec_.moe_intermediate_size, rows.count}, group, output);
        for (int64_t i = 0; i < rows.count; ++i) {
          const RoutedRow& routed = plan_.routed[rows.begin + i];
          kernels_.axpy(routed.weight, output + i * kRowGroup, width, sum + routed.row * kRowGroup);
        }
      }
      if (weights_.always.gate.rows > 0) {
        LinearGroup(kernels_, weights_.always.down, {a_.always_gated.get(), weights_.always.gate.rows, rows_}, group,
                    output);
        kernels_.axpy(1.0f, output, rows_ * kRowGroup, sum);
      }
      for (int64_t row = 0; row < rows_; ++row) {
        kernels_.axpy(1.0f, sum + row * kRowGroup, width,
                      a_.residual.get() + row * spec_.hidden_size + group * kRowGroup);
      }
    });
  }

  EngineContext& context_;
  const ModelSpec& spec_;
  const CpuKernels& kernels_;
  Activations& a_;
  const FeedForwardWeights& weights_;
  int64_t rows_;
  ExpertPlan plan_;
};

}  // namespace

absl::Status RunFeedForward(EngineContext& context, const FeedForwardWeights& weights, int64_t rows) {
  return FeedForward(context, weights, rows).Run();
}

}  // namespace moestro
