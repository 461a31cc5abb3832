#include "common/model/moe.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/math.h"
#include "common/model/linear.h"

namespace moestro {
namespace {

// What one run of the pool computes. A whole layer: all experts of its rows and the one that all rows take, added up in
// scratch, then added to the residual. Or a part of that, with the sums so far in memory.
struct MoeWork {
  std::span<const RoutedRow> routed;    // the rows of all `experts`, one expert's behind the other's
  std::span<const ExpertRows> experts;  // in ascending id, at most num_experts; their ranges are of `routed`
  ExpertSlice slice;                    // holds all `experts`
  const MlpWeights* always = nullptr;   // null: none
  int64_t rows = 0;                     // of `always`, or the most of one expert
  const uint16_t* x = nullptr;          // BF16 [*, hidden]
  float* sums = nullptr;                // F32 [*, hidden]; null: start from zero, in scratch
  bool into_residual = false;           // the first `rows` sums are complete then

  bool has_always() const { return always != nullptr && always->gate.rows > 0; }
};

// Every domain has tasks of its own, in this order:
//   gather    a routed row each: copies it next to the other rows of its expert
//   gate, up  an expert and some of the domain's row groups each, experts in ascending id, the dense MLP or shared
//             expert last: their outputs of silu(gate x) * up x, for all rows of the expert
//   down      some of the domain's groups of hidden numbers each: walks the experts in ascending id, so that the order
//             of the sum is fixed, and waits before each until all domains have its gate and up
// By the time a worker comes to the first down task, most experts are done: only the last ones are waited for.
class MoeLayer {
 public:
  MoeLayer(const MoeContext& context, const MoeWork& work)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        a_(context.activations),
        progress_(context.progress),
        work_(work),
        always_groups_(work.has_always() ? RowGroups(work.always->gate) : 0),
        domains_(context.pool.domains()) {
    const int64_t gate_groups =
        static_cast<int64_t>(work_.experts.size()) * PaddedRows(spec_.moe_intermediate_size) / kRowGroup +
        always_groups_;
    gate_groups_ = TaskGroups(gate_groups, context.pool.active_threads());
    down_groups_ = TaskGroups(PaddedRows(spec_.hidden_size) / kRowGroup, context.pool.active_threads());
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
    for (size_t i = 0; i < work_.experts.size(); ++i) {
      const bool direct = LiesTogether(work_.experts[i]);
      gathers_ = gathers_ || !direct;
      progress_.experts[i].gathered.Reset(direct ? 0 : work_.experts[i].count);
      progress_.experts[i].gated.Reset(AllTasks(&MoeLayer::ExpertTasks));
    }
    progress_.always_gated.Reset(AllTasks(&MoeLayer::AlwaysTasks));
  }

  // Whether the expert's rows are neighbours in the batch: always so with one row. They are read where they lie.
  bool LiesTogether(const ExpertRows& expert) const {
    return work_.routed[expert.begin + expert.count - 1].row - work_.routed[expert.begin].row == expert.count - 1;
  }

  IndexRange GatherTasks(int domain) const {
    return EvenPart(gathers_ ? static_cast<int64_t>(work_.routed.size()) : 0, domain, domains_);
  }
  IndexRange ExpertGroups(int domain) const {
    return EvenPart(PaddedRows(spec_.moe_intermediate_size) / kRowGroup, domain, domains_);
  }
  IndexRange AlwaysGroups(int domain) const { return EvenPart(always_groups_, domain, domains_); }
  IndexRange DownGroups(int domain) const {
    return EvenPart(PaddedRows(spec_.hidden_size) / kRowGroup, domain, domains_);
  }

  int64_t ExpertTasks(int domain) const { return CeilDiv(ExpertGroups(domain).size(), gate_groups_); }
  int64_t AlwaysTasks(int domain) const { return CeilDiv(AlwaysGroups(domain).size(), gate_groups_); }
  int64_t DownTasks(int domain) const { return CeilDiv(DownGroups(domain).size(), down_groups_); }
  int64_t GateTasks(int domain) const {
    return static_cast<int64_t>(work_.experts.size()) * ExpertTasks(domain) + AlwaysTasks(domain);
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
    const auto after = std::ranges::upper_bound(work_.experts, routed, {}, &ExpertRows::begin);
    const auto expert = after - work_.experts.begin() - 1;
    if (LiesTogether(work_.experts[expert])) return;
    std::memcpy(a_.gathered.get() + routed * spec_.hidden_size, work_.x + work_.routed[routed].row * spec_.hidden_size,
                spec_.hidden_size * sizeof(uint16_t));
    progress_.experts[expert].gathered.Arrive();
  }

  LinearInput InputOf(const ExpertRows& expert) const {
    const uint16_t* x = LiesTogether(expert) ? work_.x + work_.routed[expert.begin].row * spec_.hidden_size
                                             : a_.gathered.get() + expert.begin * spec_.hidden_size;
    return {x, spec_.hidden_size, expert.count};
  }
  int64_t GatedStride() const { return RowStride(spec_.moe_intermediate_size); }
  uint16_t* GatedOf(const ExpertRows& expert) const { return a_.routed_gated.get() + expert.begin * GatedStride(); }
  int64_t AlwaysStride() const { return RowStride(work_.always->gate.rows); }
  const MlpWeights& WeightsOf(const ExpertRows& expert) const {
    return work_.slice.weights[expert.expert - work_.slice.first];
  }

  void Gate(int domain, int64_t task, WorkerScratch& scratch) {
    const int64_t expert_tasks = ExpertTasks(domain);
    const int64_t routed_tasks = static_cast<int64_t>(work_.experts.size()) * expert_tasks;
    if (task >= routed_tasks) {
      const LinearInput input{work_.x, spec_.hidden_size, work_.rows};
      const IndexRange rows =
          TaskRows(work_.always->gate.rows, AlwaysGroups(domain), task - routed_tasks, gate_groups_);
      GateRows(*work_.always, input, rows, scratch, a_.always_gated.get(), AlwaysStride());
      progress_.always_gated.Arrive();
      return;
    }
    const int64_t i = task / expert_tasks;
    const ExpertRows& expert = work_.experts[i];
    const MlpWeights& mlp = WeightsOf(expert);
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
    const bool in_scratch = work_.sums == nullptr;
    float* sums = in_scratch ? scratch.group_b.get() : work_.sums + rows.begin;
    const int64_t stride = in_scratch ? rows.size() : spec_.hidden_size;
    if (in_scratch) std::fill_n(sums, work_.rows * stride, 0.0f);
    for (size_t i = 0; i < work_.experts.size(); ++i) {
      const ExpertRows& expert = work_.experts[i];
      progress_.experts[i].gated.Wait();
      LinearRows(kernels_, WeightsOf(expert).down, {GatedOf(expert), GatedStride(), expert.count}, rows, output);
      for (int64_t row = 0; row < expert.count; ++row) {
        const RoutedRow& routed = work_.routed[expert.begin + row];
        kernels_.axpy(routed.weight, output + row * rows.size(), rows.size(), sums + routed.row * stride);
      }
    }
    if (work_.has_always()) {
      progress_.always_gated.Wait();
      LinearRows(kernels_, work_.always->down, {a_.always_gated.get(), AlwaysStride(), work_.rows}, rows, output);
      for (int64_t row = 0; row < work_.rows; ++row) {
        kernels_.axpy(1.0f, output + row * rows.size(), rows.size(), sums + row * stride);
      }
    }
    if (!work_.into_residual) return;
    for (int64_t row = 0; row < work_.rows; ++row) {
      kernels_.axpy(1.0f, sums + row * stride, rows.size(), a_.residual.get() + row * spec_.hidden_size + rows.begin);
    }
  }

  const MoeContext& context_;
  const ModelSpec& spec_;
  const CpuKernels& kernels_;
  Activations& a_;
  MoeProgress& progress_;
  const MoeWork& work_;
  int64_t always_groups_;
  int domains_;
  int64_t gate_groups_ = 1;  // row groups of a gate and up task
  int64_t down_groups_ = 1;  // and of a down task
  bool gathers_ = false;     // whether any expert's rows do not lie together
};

// Cuts the plan's rows of the slice's experts into runs that the activations hold. In the order of the plan: so a row's
// experts stay in ascending id, and the rows of one run lie together.
class PieceWalk {
 public:
  // Puts the pieces of each run into `pieces`.
  PieceWalk(const ModelSpec& spec, int64_t max_rows, const ExpertSlice& slice, const ExpertPlan& plan,
            std::vector<ExpertRows>& pieces)
      : max_rows_(max_rows),
        max_routed_(max_rows * spec.experts_per_token),
        max_pieces_(spec.num_experts),
        plan_(plan),
        pieces_(pieces) {
    const auto place = [&](int64_t id) {
      return std::ranges::lower_bound(plan.experts, id, {}, &ExpertRows::expert) - plan.experts.begin();
    };
    next_ = place(slice.first);
    end_ = place(slice.first + static_cast<int64_t>(slice.weights.size()));
    if (next_ < end_) begin_ = plan.experts[next_].begin;
  }

  // The next run's experts, with ranges of routed(); none when all have been walked.
  std::span<const ExpertRows> Next() {
    pieces_.clear();
    begin_ += routed_;
    routed_ = 0;
    while (next_ < end_ && routed_ < max_routed_ && static_cast<int64_t>(pieces_.size()) < max_pieces_) {
      const ExpertRows& expert = plan_.experts[next_];
      const int64_t count = std::min({expert.count - done_, max_rows_, max_routed_ - routed_});
      pieces_.push_back({expert.expert, routed_, count});
      routed_ += count;
      done_ += count;
      if (done_ < expert.count) continue;
      done_ = 0;
      ++next_;
    }
    return pieces_;
  }
  std::span<const RoutedRow> routed() const { return std::span(plan_.routed).subspan(begin_, routed_); }

 private:
  const int64_t max_rows_;
  const int64_t max_routed_;
  const int64_t max_pieces_;  // for which there are countdowns
  const ExpertPlan& plan_;
  int64_t next_ = 0;  // place of the next expert in the plan
  int64_t end_ = 0;
  int64_t done_ = 0;    // rows of it that have been walked
  int64_t begin_ = 0;   // of the run, in plan_.routed
  int64_t routed_ = 0;  // rows of the run
  std::vector<ExpertRows>& pieces_;
};

}  // namespace

void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, int64_t rows,
            std::span<const ExpertChoice> choices, MoeSync sync) {
  ExpertPlan& plan = context.activations.plan;
  plan.Sort(choices, context.spec.experts_per_token, choices.empty() ? 0 : context.spec.num_experts);
  const MoeWork work{.routed = plan.routed,
                     .experts = plan.experts,
                     .slice = {weights.experts, 0},
                     .always = &weights.always,
                     .rows = rows,
                     .x = context.activations.normed_narrow.get(),
                     .sums = nullptr,
                     .into_residual = true};
  MoeLayer(context, work).Run(sync);
}

void RunExperts(const MoeContext& context, int64_t max_rows, const ExpertSlice& slice, const ExpertPlan& plan,
                const uint16_t* x, float* sums) {
  PieceWalk walk(context.spec, max_rows, slice, plan, context.activations.pieces);
  for (auto pieces = walk.Next(); !pieces.empty(); pieces = walk.Next()) {
    const MoeWork work{.routed = walk.routed(),
                       .experts = pieces,
                       .slice = slice,
                       .always = nullptr,
                       .rows = std::ranges::max(pieces, {}, &ExpertRows::count).count,
                       .x = x,
                       .sums = sums,
                       .into_residual = false};
    MoeLayer(context, work).Run(MoeSync::kPerExpert);
  }
}

void AddSharedExpert(const MoeContext& context, const MlpWeights& always, int64_t rows, float* sums) {
  const MoeWork work{.routed = {},
                     .experts = {},
                     .slice = {},
                     .always = &always,
                     .rows = rows,
                     .x = context.activations.normed_narrow.get(),
                     .sums = sums,
                     .into_residual = true};
  MoeLayer(context, work).Run(MoeSync::kPerExpert);
}

}  // namespace moestro
