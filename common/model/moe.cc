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
//   gate, up  an expert and one of the domain's row groups each, experts in ascending id, the dense MLP or shared
//             expert last: 64 outputs of silu(gate x) * up x, for all rows of the expert
//   down      one of the domain's groups of hidden numbers each: walks the experts in ascending id, so that the order
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
  }

  void Run(MoeSync sync) {
    Reset();
    const auto before_down = [this](int domain) { return GatherTasks(domain).size() + GateTasks(domain); };
    const auto down = [this](int domain) { return DownGroups(domain).size(); };
    const auto do_before_down = [this](int domain, int64_t task, int worker) { GatherOrGate(domain, task, worker); };
    const auto do_down = [this](int domain, int64_t task, int worker) {
      Down(DownGroups(domain).begin + task, a_.workers[worker]);
    };
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
      progress_.experts[i].gated.Reset(RowGroups(weights_.experts[plan_.experts[i].expert].gate));
    }
    progress_.always_gated.Reset(RowGroups(weights_.always.gate));
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
  int64_t GateTasks(int domain) const {
    return static_cast<int64_t>(plan_.experts.size()) * ExpertGroups(domain).size() + AlwaysGroups(domain).size();
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
  uint16_t* GatedOf(const ExpertRows& expert) const {
    return a_.routed_gated.get() + expert.begin * spec_.moe_intermediate_size;
  }

  void Gate(int domain, int64_t task, WorkerScratch& scratch) {
    const IndexRange groups = ExpertGroups(domain);
    const int64_t routed_tasks = static_cast<int64_t>(plan_.experts.size()) * groups.size();
    if (task >= routed_tasks) {
      const LinearInput input{a_.normed_narrow.get(), spec_.hidden_size, rows_};
      GateGroup(weights_.always, input, AlwaysGroups(domain).begin + task - routed_tasks, scratch,
                a_.always_gated.get());
      progress_.always_gated.Arrive();
      return;
    }
    const int64_t i = task / groups.size();
    const ExpertRows& expert = plan_.experts[i];
    progress_.experts[i].gathered.Wait();
    GateGroup(weights_.experts[expert.expert], InputOf(expert), groups.begin + task % groups.size(), scratch,
              GatedOf(expert));
    progress_.experts[i].gated.Arrive();
  }

  void GateGroup(const MlpWeights& mlp, const LinearInput& input, int64_t group, WorkerScratch& scratch,
                 uint16_t* gated) {
    LinearGroup(kernels_, mlp.gate, input, group, scratch.group_a.get());
    LinearGroup(kernels_, mlp.up, input, group, scratch.group_b.get());
    for (int64_t i = 0; i < input.rows; ++i) {
      kernels_.silu_mul(scratch.group_a.get() + i * kRowGroup, scratch.group_b.get() + i * kRowGroup,
                        GroupWidth(mlp.gate, group), gated + i * mlp.gate.rows + group * kRowGroup);
    }
  }

  void Down(int64_t group, WorkerScratch& scratch) {
    const int64_t width = std::min(kRowGroup, spec_.hidden_size - group * kRowGroup);
    float* output = scratch.group_a.get();
    float* sum = scratch.group_b.get();
    std::fill_n(sum, rows_ * kRowGroup, 0.0f);
    for (size_t i = 0; i < plan_.experts.size(); ++i) {
      const ExpertRows& expert = plan_.experts[i];
      progress_.experts[i].gated.Wait();
      LinearGroup(kernels_, weights_.experts[expert.expert].down,
                  {GatedOf(expert), spec_.moe_intermediate_size, expert.count}, group, output);
      for (int64_t row = 0; row < expert.count; ++row) {
        const RoutedRow& routed = plan_.routed[expert.begin + row];
        kernels_.axpy(routed.weight, output + row * kRowGroup, width, sum + routed.row * kRowGroup);
      }
    }
    if (weights_.always.gate.rows > 0) {
      progress_.always_gated.Wait();
      LinearGroup(kernels_, weights_.always.down, {a_.always_gated.get(), weights_.always.gate.rows, rows_}, group,
                  output);
      kernels_.axpy(1.0f, output, rows_ * kRowGroup, sum);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      kernels_.axpy(1.0f, sum + row * kRowGroup, width,
                    a_.residual.get() + row * spec_.hidden_size + group * kRowGroup);
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
  bool gathers_ = false;  // whether any expert's rows do not lie together
};

}  // namespace

void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, int64_t rows,
            std::span<const ExpertChoice> choices, MoeSync sync) {
  MoeLayer(context, weights, rows, choices).Run(sync);
}

}  // namespace moestro
