#include "common/model/moe/moe.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/math.h"
#include "common/model/linear.h"
#include "common/model/moe/moe_tasks.h"

namespace moestro::model {
namespace {

// The work of one run of the pool. Either a whole layer: all experts of its rows and the shared MLP, summed in scratch,
// then added to the residual. Or a part of that, with partial sums in memory.
struct MoeWork {
  std::span<const RoutedRow> routed = {};    // the rows of all `experts`, contiguous by expert
  std::span<const ExpertRows> experts = {};  // ascending ids, at most num_experts; their ranges are in `routed`
  ExpertSlice slice = {};                    // contains all `experts`
  const MlpWeights* dense = nullptr;         // null: none
  const float* dense_weights = nullptr;      // [rows], of the outputs of `dense`; null: all are 1
  int64_t rows = 0;                          // of `dense`, or the maximum over experts
  const uint16_t* x = nullptr;               // BF16 [*, hidden]
  float* sums = nullptr;                     // F32 [*, hidden]; null: start from zero, in scratch
  float* residual = nullptr;                 // F32 [rows, hidden]; null: the sums are still incomplete
  float* outputs = nullptr;                  // F32, as `routed`: each row's output, in place of sums; null: sums

  bool has_dense() const { return dense != nullptr && dense->gate.rows > 0; }
};

// The tasks of moe_tasks.h. A down task walks the experts in ascending id, which fixes the order of the sum. Before
// each expert, it waits until all domains have its gate and up. When a worker reaches the first down task, most experts
// are done, so it waits only for the last ones.
class MoeLayer {
 public:
  MoeLayer(const MoeContext& context, const MoeWork& work)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        buffers_(context.buffers),
        work_(work),
        dense_coding_(work.has_dense() ? CodingOfInput(*work.dense) : InputCoding::kNone),
        tasks_(context.spec, work.routed, work.experts, work.has_dense() ? work.dense->gate.rows : 0,
               context.pool.domains(), context.pool.active_threads(),
               {.routed = std::ranges::any_of(
                    work.experts, [&](const ExpertRows& expert) { return CodingOf(expert) != InputCoding::kNone; }),
                .dense_rows = dense_coding_ == InputCoding::kNone ? 0 : work.rows}) {}

  void Run(MoeSync sync) {
    Reset();
    const auto before_down = [this](int domain) { return tasks_.Gather(domain).size() + tasks_.GateTasks(domain); };
    const auto down = [this](int domain) { return tasks_.DownTasks(domain); };
    const auto do_before_down = [this](int domain, int64_t task, int worker) { GatherOrGate(domain, task, worker); };
    const auto do_down = [this](int domain, int64_t task, int worker) {
      Down(domain, tasks_.DownRows(domain, task), buffers_.workers[worker]);
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
    for (size_t i = 0; i < work_.experts.size(); ++i) {
      const ExpertRows& expert = work_.experts[i];
      buffers_.progress[i].gathered.Reset(IsGathered(expert) ? expert.count : 0);
      buffers_.progress[i].gated.Reset(tasks_.AllExpertTasks() + (IsDownCoded(WeightsOf(expert)) ? 1 : 0));
    }
    if (!work_.has_dense()) return;
    buffers_.dense_progress.gathered.Reset(dense_coding_ == InputCoding::kNone ? 0 : work_.rows);
    buffers_.dense_progress.gated.Reset(tasks_.AllAlwaysTasks() + (IsDownCoded(*work_.dense) ? 1 : 0));
  }

  // Of the input of gate and up, which share it. Where they differ, each task codes it.
  InputCoding CodingOfInput(const MlpWeights& mlp) const {
    const InputCoding coding = InputsOf(kernels_, mlp.gate);
    return coding == InputsOf(kernels_, mlp.up) ? coding : InputCoding::kNone;
  }
  InputCoding CodingOf(const ExpertRows& expert) const { return CodingOfInput(WeightsOf(expert)); }
  bool IsGathered(const ExpertRows& expert) const {
    return CodingOf(expert) != InputCoding::kNone || !LiesTogether(work_.routed, expert);
  }
  bool IsDownCoded(const MlpWeights& mlp) const { return InputsOf(kernels_, mlp.down) != InputCoding::kNone; }

  void GatherOrGate(int domain, int64_t task, int worker) {
    const IndexRange gather = tasks_.Gather(domain);
    if (task < gather.size()) {
      Gather(gather.begin + task);
    } else {
      Gate(domain, tasks_.Gate(domain, task - gather.size()), buffers_.workers[worker]);
    }
  }

  void Gather(int64_t row) {
    if (row < tasks_.routed_rows()) return GatherRouted(row);
    row -= tasks_.routed_rows();
    Encode(dense_coding_, work_.x + row * spec_.hidden_size, spec_.hidden_size, row, buffers_.dense_coded.get());
    buffers_.dense_progress.gathered.Arrive();
  }

  void GatherRouted(int64_t routed) {
    const auto after = std::ranges::upper_bound(work_.experts, routed, {}, &ExpertRows::begin);
    const auto expert = after - work_.experts.begin() - 1;
    const ExpertRows& rows = work_.experts[expert];
    if (!IsGathered(rows)) return;
    const uint16_t* const x = work_.x + work_.routed[routed].row * spec_.hidden_size;
    const InputCoding coding = CodingOf(rows);
    if (coding == InputCoding::kNone) {
      const int64_t bytes = spec_.hidden_size * static_cast<int64_t>(sizeof(uint16_t));
      std::memcpy(GatheredOf(rows) + (routed - rows.begin) * bytes, x, bytes);
    } else {
      Encode(coding, x, spec_.hidden_size, routed - rows.begin, GatheredOf(rows));
    }
    buffers_.progress[expert].gathered.Arrive();
  }

  // Writes row `row` of the coded rows at `rows`.
  void Encode(InputCoding coding, const uint16_t* x, int64_t cols, int64_t row, uint8_t* rows) const {
    EncodeRow(kernels_, coding, x, cols, rows + row * CodedRowBytes(coding, cols));
  }

  uint8_t* GatheredOf(const ExpertRows& expert) const {
    return buffers_.gathered.get() + expert.begin * GatheredBytes(spec_);
  }
  LinearInput InputOf(const ExpertRows& expert) const {
    const InputCoding coding = CodingOf(expert);
    if (coding != InputCoding::kNone) return {nullptr, 0, expert.count, coding, GatheredOf(expert)};
    const uint16_t* x = LiesTogether(work_.routed, expert)
                            ? work_.x + work_.routed[expert.begin].row * spec_.hidden_size
                            : reinterpret_cast<const uint16_t*>(GatheredOf(expert));
    return {x, spec_.hidden_size, expert.count};
  }
  int64_t GatedStride() const { return RowStride(spec_.moe_intermediate_size); }
  uint16_t* GatedOf(const ExpertRows& expert) const {
    return buffers_.routed_gated.get() + expert.begin * GatedStride();
  }
  int64_t DenseStride() const { return RowStride(work_.dense->gate.rows); }
  const MlpWeights& WeightsOf(const ExpertRows& expert) const {
    return work_.slice.weights[expert.expert - work_.slice.first];
  }

  // What a domain multiplies with.
  const MlpWeights& WeightsOf(const ExpertRows& expert, int domain) const {
    if (work_.slice.of_domain.empty()) return WeightsOf(expert);
    return work_.slice.of_domain[static_cast<size_t>(domain)][static_cast<size_t>(expert.expert)];
  }

  void Gate(int domain, const GateTask& task, const ExpertBuffers::Scratch& scratch) {
    if (task.expert == std::ssize(work_.experts)) {
      buffers_.dense_progress.gathered.Wait();
      const LinearInput input{work_.x, spec_.hidden_size, work_.rows, dense_coding_, buffers_.dense_coded.get()};
      GateRows(*work_.dense, input, task.rows, scratch, buffers_.dense_gated.get(), DenseStride(), /*routed=*/false);
      FinishGate(*work_.dense, DenseDownInput(), buffers_.dense_coded.get(), buffers_.dense_progress);
      return;
    }
    const ExpertRows& expert = work_.experts[task.expert];
    ExpertBuffers::Progress& progress = buffers_.progress[task.expert];
    progress.gathered.Wait();
    GateRows(WeightsOf(expert, domain), InputOf(expert), task.rows, scratch, GatedOf(expert), GatedStride(),
             /*routed=*/true);
    FinishGate(WeightsOf(expert), DownInputOf(expert), GatheredOf(expert), progress);
  }

  // The worker of the MLP's last task codes what all of them have written, over the inputs that nobody reads any more.
  void FinishGate(const MlpWeights& mlp, const LinearInput& down, uint8_t* coded, ExpertBuffers::Progress& progress) {
    const int64_t left = progress.gated.Arrive();
    if (down.coding == InputCoding::kNone || left > 1) return;
    for (int64_t row = 0; row < down.rows; ++row) {
      Encode(down.coding, down.x + row * down.stride, mlp.down.cols, row, coded);
    }
    progress.gated.Arrive();
  }
  LinearInput DownInputOf(const ExpertRows& expert) const {
    return {GatedOf(expert), GatedStride(), expert.count, InputsOf(kernels_, WeightsOf(expert).down),
            GatheredOf(expert)};
  }
  LinearInput DenseDownInput() const {
    return {buffers_.dense_gated.get(), DenseStride(), work_.rows, InputsOf(kernels_, work_.dense->down),
            buffers_.dense_coded.get()};
  }

  void GateRows(const MlpWeights& mlp, const LinearInput& input, IndexRange rows, const ExpertBuffers::Scratch& scratch,
                uint16_t* gated, int64_t gated_stride, bool routed) {
    LinearRows(kernels_, mlp.gate, input, rows, scratch.group_a.get());
    LinearRows(kernels_, mlp.up, input, rows, scratch.group_b.get());
    AddBias(mlp.gate_bias, rows, input.rows, scratch.group_a.get());
    AddBias(mlp.up_bias, rows, input.rows, scratch.group_b.get());
    for (int64_t i = 0; i < input.rows; ++i) {
      const float* const gate = scratch.group_a.get() + i * rows.size();
      const float* const up = scratch.group_b.get() + i * rows.size();
      uint16_t* const out = gated + i * gated_stride + rows.begin;
      if (routed && spec_.swiglu_limit != 0) {
        kernels_.clamped_swiglu(gate, up, rows.size(), static_cast<float>(spec_.swiglu_limit),
                                static_cast<float>(spec_.swiglu_alpha), out);
      } else {
        kernels_.silu_mul(gate, up, rows.size(), out);
      }
    }
  }

  // y += bias for some outputs of some rows, [count, rows.size()]. Null: there is none.
  void AddBias(const float* bias, IndexRange rows, int64_t count, float* y) const {
    if (bias == nullptr) return;
    for (int64_t i = 0; i < count; ++i) kernels_.axpy(1.0f, bias + rows.begin, rows.size(), y + i * rows.size());
  }

  void Down(int domain, IndexRange rows, const ExpertBuffers::Scratch& scratch) {
    if (work_.outputs != nullptr) return Output(domain, rows, scratch);
    float* output = scratch.group_a.get();
    const bool in_scratch = work_.sums == nullptr;
    float* sums = in_scratch ? scratch.group_b.get() : work_.sums + rows.begin;
    const int64_t stride = in_scratch ? rows.size() : spec_.hidden_size;
    if (in_scratch) std::fill_n(sums, work_.rows * stride, 0.0f);
    for (size_t i = 0; i < work_.experts.size(); ++i) {
      const ExpertRows& expert = work_.experts[i];
      DownExpert(domain, i, rows, output);
      for (int64_t row = 0; row < expert.count; ++row) {
        const RoutedRow& routed = work_.routed[expert.begin + row];
        kernels_.axpy(routed.weight, output + row * rows.size(), rows.size(), sums + routed.row * stride);
      }
    }
    if (work_.has_dense()) {
      buffers_.dense_progress.gated.Wait();
      LinearRows(kernels_, work_.dense->down, DenseDownInput(), rows, output);
      for (int64_t row = 0; row < work_.rows; ++row) {
        const float weight = work_.dense_weights == nullptr ? 1.0f : work_.dense_weights[row];
        kernels_.axpy(weight, output + row * rows.size(), rows.size(), sums + row * stride);
      }
    }
    if (work_.residual == nullptr) return;
    for (int64_t row = 0; row < work_.rows; ++row) {
      kernels_.axpy(1.0f, sums + row * stride, rows.size(), work_.residual + row * spec_.hidden_size + rows.begin);
    }
  }

  // Some of an expert's outputs, without weights.
  void DownExpert(int domain, size_t index, IndexRange rows, float* output) {
    const ExpertRows& expert = work_.experts[index];
    buffers_.progress[index].gated.Wait();
    const MlpWeights& weights = WeightsOf(expert, domain);
    LinearRows(kernels_, weights.down, DownInputOf(expert), rows, output);
    AddBias(weights.down_bias, rows, expert.count, output);
  }

  void Output(int domain, IndexRange rows, const ExpertBuffers::Scratch& scratch) {
    const float* const output = scratch.group_a.get();
    for (size_t i = 0; i < work_.experts.size(); ++i) {
      const ExpertRows& expert = work_.experts[i];
      DownExpert(domain, i, rows, scratch.group_a.get());
      for (int64_t row = 0; row < expert.count; ++row) {
        std::copy_n(output + row * rows.size(), rows.size(),
                    work_.outputs + (expert.begin + row) * spec_.hidden_size + rows.begin);
      }
    }
  }

  const MoeContext& context_;
  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  ExpertBuffers& buffers_;
  const MoeWork& work_;
  const InputCoding dense_coding_;
  const MoeTasks tasks_;
};

// Cuts the plan's rows of the slice's experts into runs that fit the buffers. It follows the plan's order, so a row's
// experts stay in ascending id, and the rows of one run are contiguous.
class PieceWalk {
 public:
  // Writes the pieces of each run into `buffers`.
  PieceWalk(const weights::ModelSpec& spec, ExpertBuffers& buffers, const ExpertSlice& slice, const ExpertPlan& plan)
      : max_rows_(buffers.max_rows),
        max_routed_(buffers.max_rows * spec.experts_per_token),
        max_pieces_(spec.num_experts),
        plan_(plan),
        pieces_(buffers.pieces) {
    const auto place = [&](int64_t id) {
      return std::ranges::lower_bound(plan.experts, id, {}, &ExpertRows::expert) - plan.experts.begin();
    };
    next_ = place(slice.first);
    end_ = place(slice.first + static_cast<int64_t>(slice.weights.size()));
    if (next_ < end_) begin_ = plan.experts[next_].begin;
  }

  // The next run's experts, with ranges of routed(); empty at the end.
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
  int64_t begin() const { return begin_; }
  std::span<const RoutedRow> routed() const { return std::span(plan_.routed).subspan(begin_, routed_); }

 private:
  const int64_t max_rows_;
  const int64_t max_routed_;
  const int64_t max_pieces_;  // limited by the number of countdowns
  const ExpertPlan& plan_;
  int64_t next_ = 0;  // index of the next expert in the plan
  int64_t end_ = 0;
  int64_t done_ = 0;    // its rows walked so far
  int64_t begin_ = 0;   // of the run, in plan_.routed
  int64_t routed_ = 0;  // rows of the run
  std::vector<ExpertRows>& pieces_;
};

}  // namespace

void RunMoe(const MoeContext& context, const FeedForwardWeights& weights, const RowsView& rows,
            std::span<const ExpertChoice> choices, MoeSync sync) {
  ExpertPlan& plan = context.buffers.plan;
  plan.Sort(choices, context.spec.experts_per_token, choices.empty() ? 0 : context.spec.num_experts);
  const MoeWork work{.routed = plan.routed,
                     .experts = plan.experts,
                     .slice = {weights.experts, 0, weights.domain_experts},
                     .dense = &weights.dense,
                     .dense_weights = weights.shared_gate == nullptr ? nullptr : rows.shared_weights,
                     .rows = rows.count,
                     .x = rows.x,
                     .residual = rows.residual};
  MoeLayer(context, work).Run(sync);
}

void RunExperts(const MoeContext& context, const ExpertSlice& slice, const ExpertPlan& plan, const uint16_t* x,
                float* sums) {
  PieceWalk walk(context.spec, context.buffers, slice, plan);
  for (auto pieces = walk.Next(); !pieces.empty(); pieces = walk.Next()) {
    const MoeWork work{.routed = walk.routed(),
                       .experts = pieces,
                       .slice = slice,
                       .rows = std::ranges::max(pieces, {}, &ExpertRows::count).count,
                       .x = x,
                       .sums = sums};
    MoeLayer(context, work).Run(MoeSync::kPerExpert);
  }
}

void RunExpertOutputs(const MoeContext& context, const ExpertSlice& slice, const ExpertPlan& plan, const uint16_t* x,
                      float* outputs) {
  PieceWalk walk(context.spec, context.buffers, slice, plan);
  for (auto pieces = walk.Next(); !pieces.empty(); pieces = walk.Next()) {
    const MoeWork work{.routed = walk.routed(),
                       .experts = pieces,
                       .slice = slice,
                       .rows = std::ranges::max(pieces, {}, &ExpertRows::count).count,
                       .x = x,
                       .outputs = outputs + walk.begin() * context.spec.hidden_size};
    MoeLayer(context, work).Run(MoeSync::kPerExpert);
  }
}

void RunSharedExpert(const MoeContext& context, const MlpWeights& dense, const RowsView& rows, float* outputs) {
  std::fill_n(outputs, rows.count * context.spec.hidden_size, 0.0f);
  const MoeWork work{.dense = &dense, .rows = rows.count, .x = rows.x, .sums = outputs};
  MoeLayer(context, work).Run(MoeSync::kPerExpert);
}

void AddSharedExpert(const MoeContext& context, const MlpWeights& dense, const RowsView& rows, float* sums) {
  const MoeWork work{.dense = &dense,
                     .dense_weights = rows.shared_weights,
                     .rows = rows.count,
                     .x = rows.x,
                     .sums = sums,
                     .residual = rows.residual};
  MoeLayer(context, work).Run(MoeSync::kPerExpert);
}

}  // namespace moestro::model
