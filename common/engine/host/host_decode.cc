#include "common/engine/host/host_decode.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/model/attention/attention.h"
#include "common/model/head.h"
#include "common/model/linear.h"
#include "common/model/moe/expert_plan.h"
#include "common/model/moe/feed_forward.h"
#include "common/model/moe/moe.h"

namespace moestro::engine {

struct HostDecode::LaneState {
  LaneState(HostDecode& its_compute, const weights::ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows,
            int threads)
      : compute(its_compute),
        pool(threads),
        context{spec, kernels, pool},
        attention(context, max_rows),
        gating(spec, max_rows),
        experts(spec, max_rows, threads, model::DenseWidth(spec)),
        gate(max_rows * spec.shared_intermediate_size()),
        up(max_rows * spec.shared_intermediate_size()),
        shared(max_rows * spec.hidden_size),
        sums(max_rows * spec.hidden_size) {}

  HostDecode& compute;
  WorkerPool pool;
  model::EngineContext context;
  model::AttentionBuffers attention;
  model::GatingBuffers gating;
  model::ExpertBuffers experts;
  model::Buffer<float> gate;    // [rows, shared_intermediate_size]
  model::Buffer<float> up;      // [rows, shared_intermediate_size]
  model::Buffer<float> shared;  // [rows, hidden]: the shared expert's outputs
  model::Buffer<float> sums;    // [rows, hidden]: the routed experts'
  const model::CheckedBatch* batch = nullptr;
  model::RowsView rows;  // of the batch
};

// Of the call to HotExperts.
struct HostDecode::HotState {
  HotState(const weights::ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows)
      : context{spec, kernels, pool}, buffers(spec, max_rows, pool.threads(), /*dense_width=*/0) {
    const auto most = static_cast<size_t>(max_rows * spec.experts_per_token);
    plan.experts.reserve(most);
    plan.routed.reserve(most);
    weights.reserve(most);
    ends.reserve(most);
  }

  WorkerPool pool{1};
  model::EngineContext context;
  model::ExpertBuffers buffers;
  model::ExpertPlan plan;
  std::vector<model::MlpWeights> weights;
  std::vector<size_t> ends;  // of the experts that are computed together
  const uint16_t* x = nullptr;
  float* outputs = nullptr;

  void Run(size_t group) {
    const size_t begin = group == 0 ? 0 : ends[group - 1];
    const auto together = std::span<const model::MlpWeights>(weights).subspan(begin, ends[group] - begin);
    model::RunExpertOutputs({context, buffers}, {together, static_cast<int64_t>(begin)}, plan, x, outputs);
  }
};

HostDecode::HostDecode(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                       int64_t max_rows, int threads, int64_t hot_rows)
    : spec_(spec), weights_(weights), kernels_(kernels), rope_(spec), rows_(spec, max_rows), head_(spec) {
  for (int lane = 0; lane < kMaxLanes; ++lane) {
    lanes_.push_back(std::make_unique<LaneState>(*this, spec, kernels, max_rows, threads));
  }
  if (hot_rows > 0) hot_ = std::make_unique<HotState>(spec, kernels, hot_rows);
}

HostDecode::~HostDecode() = default;

void HostDecode::Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) {
  LaneState& state = *lanes_[static_cast<size_t>(lane)];
  state.batch = &batch;
  state.rows = rows_.View({first_row, first_row + batch.size()});
}

ExpertIo HostDecode::expert_io(int lane) const {
  LaneState& state = *lanes_[static_cast<size_t>(lane)];
  return {state.rows.x, state.gating.choices.data(), state.sums.get()};
}

// What kernels capture is two words, which std::function stores without allocating.
absl::Status HostDecode::Embed(int lane, device::Stream& stream) {
  return stream.Launch({.name = "embed", .cost = {}, .run = [this, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
                          model::EmbedRows(state.context, rope_, weights_.embedding, state.batch->rows, state.rows);
                          return absl::OkStatus();
                        }});
}

absl::Status HostDecode::Attend(int lane, int64_t layer, device::Stream& stream) {
  return stream.Launch(
      {.name = "attend", .cost = {}, .run = [layer, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         return state.compute.RunAttend(state, layer);
       }});
}

absl::Status HostDecode::Shared(int lane, int64_t layer, device::Stream& stream) {
  const model::MlpWeights& mlp = weights_.layers[layer].feed_forward.dense;
  return stream.Launch(
      {.name = "shared expert", .cost = {}, .run = [&mlp, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         state.compute.RunShared(state, mlp);
         return absl::OkStatus();
       }});
}

absl::Status HostDecode::Combine(int lane, int64_t layer, device::Stream& stream) {
  const model::MlpWeights& mlp = weights_.layers[layer].feed_forward.dense;
  return stream.Launch(
      {.name = "combine", .cost = {}, .run = [&mlp, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         state.compute.RunCombine(state, mlp);
         return absl::OkStatus();
       }});
}

absl::Status HostDecode::HotExperts(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                    device::Stream& stream) {
  if (hot_ == nullptr) return DecodeCompute::HotExperts(experts, x, outputs, stream);
  model::ExpertPlan& plan = hot_->plan;
  plan.experts.clear();
  plan.routed.clear();
  hot_->weights.clear();
  hot_->ends.clear();
  for (const HotExpert& expert : experts) {
    if (expert.loaded != nullptr && !hot_->weights.empty()) hot_->ends.push_back(hot_->weights.size());
    plan.experts.push_back({static_cast<int32_t>(hot_->weights.size()), expert.begin, expert.count});
    hot_->weights.push_back(expert.weights);
    for (int64_t row = expert.begin; row < expert.begin + expert.count; ++row) plan.routed.push_back({row, 1.0f});
  }
  hot_->ends.push_back(hot_->weights.size());
  hot_->x = x;
  hot_->outputs = outputs;
  size_t begin = 0;
  for (size_t group = 0; group < hot_->ends.size(); begin = hot_->ends[group++]) {
    if (experts[begin].loaded != nullptr) MOE_RETURN_IF_ERROR(stream.WaitFor(*experts[begin].loaded));
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "hot experts", .cost = {}, .run = [group, &hot = *hot_](void*) {
                                         hot.Run(group);
                                         return absl::OkStatus();
                                       }}));
  }
  return absl::OkStatus();
}

absl::Status HostDecode::RunAttend(LaneState& state, int64_t layer) {
  const model::LayerWeights& weights = weights_.layers[layer];
  model::RunAttention({state.context, state.attention}, weights.attention, layer, *state.batch, state.rows);
  return spec_.IsMoeLayer(layer)
             ? model::NormAndRoute(state.context, state.gating, weights.feed_forward, state.rows)
             : model::RunFeedForward({state.context, state.experts}, state.gating, weights.feed_forward, state.rows);
}

void HostDecode::RunShared(LaneState& state, const model::MlpWeights& mlp) {
  const int64_t width = mlp.gate.rows;
  if (width == 0) return;
  uint16_t* gated = state.experts.dense_gated.get();
  const model::LinearInput x{state.rows.x, spec_.hidden_size, state.rows.count};
  const model::LinearJob gate_and_up[] = {{mlp.gate, x, state.gate.get()}, {mlp.up, x, state.up.get()}};
  model::RunLinears(state.context, gate_and_up);
  state.pool.Run(state.rows.count, [&](int64_t row, int) {
    kernels_.silu_mul(state.gate.get() + row * width, state.up.get() + row * width, width,
                      gated + row * model::RowStride(width));
  });
  const model::LinearJob down[] = {{mlp.down, {gated, model::RowStride(width), state.rows.count}, state.shared.get()}};
  model::RunLinears(state.context, down);
}

// In the engine's order: the shared expert is added to the sum of the others, and that to the residual.
void HostDecode::RunCombine(LaneState& state, const model::MlpWeights& mlp) {
  const int64_t hidden = spec_.hidden_size, elements = state.rows.count * hidden;
  for (int64_t row = 0; row < state.rows.count && mlp.gate.rows > 0; ++row) {
    const float weight = state.rows.shared_weights == nullptr ? 1.0f : state.rows.shared_weights[row];
    kernels_.axpy(weight, state.shared.get() + row * hidden, hidden, state.sums.get() + row * hidden);
  }
  kernels_.axpy(1.0f, state.sums.get(), elements, state.rows.residual);
}

absl::Status HostDecode::Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                                absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  return model::ForRowsWithLogits(rows, [&](std::span<const int64_t> wanted) -> absl::Status {
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "head", .cost = {}, .run = [this, &wanted](void*) {
                                         const model::HeadContext context{lanes_[0]->context, head_};
                                         model::NormHeadInput(context, weights_.final_norm, rows_.View({}).residual,
                                                              wanted);
                                         model::RunHead(context, {weights_.head, 0}, std::ssize(wanted));
                                         return absl::OkStatus();
                                       }}));
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    return model::FinishLogits({lanes_[0]->context, head_}, rows, wanted, on_logits);
  });
}

}  // namespace moestro::engine
