#include "common/model/moe.h"

#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "common/model/expert_plan.h"
#include "common/model/linear.h"

namespace moestro {
namespace {

// Every domain has tasks of its own, in this order:
//   gather    a routed row each: copies it next to the other rows of its expert
//   gate, up  an expert and some of the domain's row groups each, experts in ascending id, the dense MLP or shared
//             expert last: their outputs of silu(gate x) * up x, for all rows of the expert
//   down      some of the domain's groups of hidden numbers each: walks the experts in ascending id, so that the order
//             of the sum is fixed, and waits before each until all domains have its gate and up
// By the time a worker comes to the first down task, most experts are done: only the last ones are waited for.
class MoeLayer {
 public:
  MoeLayer(const MoeContext& context, const FeedForwardWeights& weights, int64_t rows,
           std::span<const ExpertChoice> choices)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        a_(context.activations),
        progress_(context.progress),
        weights_(weights),
        rows_(rows),
        domains_(context.pool.domains()) {
    if (!choices.empty()) plan_ = PlanExperts(choices, spec_.experts_per_token, spec_.num_experts);
    const int64_t gate_groups =
        static_cast<int64_t>(plan_.experts.size()) * PaddedRows(spec_.moe_intermediate_size) / kRowGroup +
        RowGroups(weights.always.gate);
    gate_groups_ = TaskGroups(rows_, gate_groups, context.pool.active_threads());
    down_groups_ = TaskGroups(rows_, PaddedRows(spec_.hidden_size) / kRowGroup, context.pool.active_threads());
  }

  void Run(MoeSync sync) {
    Reset();
    const auto before_down = [this](int domain) { return GatherTasks(domain).size() + GateTasks(domain); };
    const auto down = [this](int domain) { return DownTasks(domain); };
    const auto do_before_down = [this](int domain, int64_t task, int worker) { GatherOrGate(domain, task, worker); };
    const auto do_down = [this](int domain, int64_t task, int worker) { Down(domain, task, a_.workers[worker]); };
    if (sync == MoeSync::kGlobal) {
      context_.pool.RunPerDomain(before_down, do_before_down);
      context_.pool.RunPerDomain(down, do_down);
      return;
    }
    context_.pool.RunPerDomain([&](int domain) { return before_down(domain) + down(domain); },
                               [&](int domain, int64_t task, int worker) {
                                 const int64_t first_down = before_down(domain);
                                 if (task < first_down) {
                                   do_before_down(domain, task, worker);
                                 } else {
                                   do_down(domain, task - first_down, worker);
                                 }
                               });
  }

 private:
  void Reset() {
    gathers_ = false;
    for (size_t i = 0; i < plan_.experts.size(); ++i) {
      const bool direct = LiesTogether(plan_.experts[i]);
      gathers_ = gathers_ || !direct;
      progress_.experts[i].gathered.Reset(direct ? 0 : plan_.experts[i].count);
      progress_.experts[i].gated.Reset(AllTasks(&MoeLayer::ExpertTasks));
    }
    progress_.always_gated.Reset(AllTasks(&MoeLayer::AlwaysTasks));
  }

  // Whether the expert's rows are neighbours in the batch: always so with one row. They are read where they lie.
  bool LiesTogether(const ExpertRows& expert) const {
    return plan_.routed[expert.begin + expert.count - 1].row - plan_.routed[expert.begin].row == expert.count - 1;
  }

  IndexRange GatherTasks(int domain) const {
    return EvenPart(gathers_ ? static_cast<int64_t>(plan_.routed.size()) : 0, domain, domains_);
  }
  IndexRange ExpertGroups(int domain) const {
    return EvenPart(PaddedRows(spec_.moe_intermediate_size) / kRowGroup, domain, domains_);
  }
  IndexRange AlwaysGroups(int domain) const { return EvenPart(RowGroups(weights_.always.gate), domain, domains_); }
  IndexRange DownGroups(int domain) const {
    return EvenPart(PaddedRows(spec_.hidden_size) / kRowGroup, domain, domains_);
  }

  int64_t ExpertTasks(int domain) const { return CeilDiv(ExpertGroups(domain).size(), gate_groups_); }
  int64_t AlwaysTasks(int domain) const { return CeilDiv(AlwaysGroups(domain).size(), gate_groups_); }
  int64_t DownTasks(int domain) const { return CeilDiv(DownGroups(domain).size(), down_groups_); }
  int64_t GateTasks(int domain) const {
    return static_cast<int64_t>(plan_.experts.size()) * ExpertTasks(domain) + AlwaysTasks(domain);
  }
  int64_t AllTasks(int64_t (MoeLayer::*tasks)(int) const) const {
    int64_t sum = 0;
    for (int domain = 0; domain < domains_; ++domain) sum += (this->*tasks)(domain);
    return sum;
  }

  void GatherOrGate(int domain, int64_t task, int worker) {
    const IndexRange gather = GatherTasks(domain);
    if (task < gather.size()) {
      Gather(gather.begin + task);
    } else {
      Gate(domain, task - gather.size(), a_.workers[worker]);
    }
  }

  void Gather(int64_t routed) {
    const auto after = std::ranges::upper_bound(plan_.experts, routed, {}, &ExpertRows::begin);
    const auto expert = after - plan_.experts.begin() - 1;
    if (LiesTogether(plan_.experts[expert])) return;
    std::memcpy(a_.gathered.get() + routed * spec_.hidden_size,
                a_.normed_narrow.get() + plan_.routed[routed].row * spec_.hidden_size,
                spec_.hidden_size * sizeof(uint16_t));
    progress_.experts[expert].gathered.Arrive();
  }

  LinearInput InputOf(const ExpertRows& expert) const {
    const uint16_t* x = LiesTogether(expert)
                            ? a_.normed_narrow.get() + plan_.routed[expert.begin].row * spec_.hidden_size
                            : a_.gathered.get() + expert.begin * spec_.hidden_size;
    return {x, spec_.hidden_size, expert.count};
  }
  int64_t GatedStride() const { return RowStride(spec_.moe_intermediate_size); }
  uint16_t* GatedOf(const ExpertRows& expert) const { return a_.routed_gated.get() + expert.begin * GatedStride(); }
  int64_t AlwaysStride() const { return RowStride(weights_.always.gate.rows); }

  void Gate(int domain, int64_t task, WorkerScratch& scratch) {
    const int64_t expert_tasks = ExpertTasks(domain);
    const int64_t routed_tasks = static_cast<int64_t>(plan_.experts.size()) * expert_tasks;
    if (task >= routed_tasks) {
      const LinearInput input{a_.normed_narrow.get(), spec_.hidden_size, rows_};
      const IndexRange rows =
          TaskRows(weights_.always.gate.rows, AlwaysGroups(domain), task - routed_tasks, gate_groups_);
      GateRows(weights_.always, input, rows, scratch, a_.always_gated.get(), AlwaysStride());
      progress_.always_gated.Arrive();
      return;
    }
    const int64_t i = task / expert_tasks;
    const ExpertRows& expert = plan_.experts[i];
    const MlpWeights& mlp = weights_.experts[expert.expert];
    progress_.experts[i].gathered.Wait();
    const IndexRange rows = TaskRows(mlp.gate.rows, ExpertGroups(domain), task % expert_tasks, gate_groups_);
    GateRows(mlp, InputOf(expert), rows, scratch, GatedOf(expert), GatedStride());
    progress_.experts[i].gated.Arrive();
  }

  void GateRows(const MlpWeights& mlp, const LinearInput& input, IndexRange rows, WorkerScratch& scratch,
                uint16_t* gated, int64_t gated_stride) {
    LinearRows(kernels_, mlp.gate, input, rows, scratch.group_a.get());
    LinearRows(kernels_, mlp.up, input, rows, scratch.group_b.get());
    for (int64_t i = 0; i < input.rows; ++i) {
      kernels_.silu_mul(scratch.group_a.get() + i * rows.size(), scratch.group_b.get() + i * rows.size(), rows.size(),
                        gated + i * gated_stride + rows.begin);
    }
  }

  void Down(int domain, int64_t task, WorkerScratch& scratch) {
    const IndexRange rows = TaskRows(spec_.hidden_size, DownGroups(domain), task, down_groups_);
    float* output = scratch.group_a.get();
    float* sum = scratch.group_b.get();
    std::fill_n(sum, rows_ * rows.size(), 0.0f);
    for (size_t i = 0; i < plan_.experts.size(); ++i) {
      const ExpertRows& expert = plan_.experts[i];
      progress_.experts[i].gated.Wait();
      LinearRows(kernels_, weights_.experts[expert.expert].down, {GatedOf(expert), GatedStride(), expert.count}, rows,
                 output);
      for (int64_t row = 0; row < expert.count; ++row) {
        const RoutedRow& routed = plan_.routed[expert.begin + row];
        kernels_.axpy(routed.weight, output + row * rows.size(), rows.size(), sum + routed.row * rows.size());
      }
    }
    if (weights_.always.gate.rows > 0) {
      progress_.always_gated.Wait();
      LinearRows(kernels_, weights_.always.down, {a_.always_gated.get(), AlwaysStride(), rows_}, rows, output);
      kernels_.axpy(1.0f, output, rows_ * rows.size(), sum);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      kernels_.axpy(1.0f, sum + row * rows.size(), rows.size(),
                    a_.residual.get() + row * spec_.hidden_size + rows.begin);
    }
  }

  const MoeContext& context_;
  const ModelSpec& spec_;
  const CpuKernels& kernels_;
  Activations& a_;
  MoeProgress& progress_;
  const FeedForwardWeights& weights_;
  int64_t rows_;
  int domains_;
  ExpertPlan plan_;
  int64_t gate_groups_ = 1;  // row groups of a gate and up task
  int64_t down_groups_ = 1;  // and of a down task
  bool gathers_ = false;     // whether any expert's rows do not lie together
};

}  // namespace

void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, int64_t rows,
            std::span<const ExpertChoice> choices, MoeSync sync) {
  MoeLayer(context, weights, rows, choices).Run(sync);
}

}  // namespace moestro
