#include "services/decode/overlap/host_compute.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/model/attention.h"
#include "common/model/embedding.h"
#include "common/model/feed_forward.h"
#include "common/model/head.h"
#include "common/model/linear.h"

namespace moestro {

struct HostCompute::LaneState {
  LaneState(HostCompute& its_compute, const ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows, int threads)
      : compute(its_compute),
        pool(threads),
        context(spec, kernels, pool, max_rows),
        gate(max_rows * spec.shared_intermediate_size()),
        up(max_rows * spec.shared_intermediate_size()),
        shared(max_rows * spec.hidden_size),
        sums(max_rows * spec.hidden_size) {}

  int64_t rows() const { return batch->size(); }

  HostCompute& compute;
  WorkerPool pool;
  EngineContext context;
  Buffer<float> gate;    // [rows, shared_intermediate_size]
  Buffer<float> up;      // [rows, shared_intermediate_size]
  Buffer<float> shared;  // [rows, hidden]: the shared expert's outputs
  Buffer<float> sums;    // [rows, hidden]: the routed experts'
  const CheckedBatch* batch = nullptr;
  MlaForm form = MlaForm::kAbsorbed;
};

HostCompute::HostCompute(const ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels,
                         int64_t max_rows, int threads)
    : spec_(spec), weights_(weights), kernels_(kernels), rope_(spec), residual_(max_rows * spec.hidden_size) {
  for (int lane = 0; lane < kMaxLanes; ++lane) {
    lanes_.push_back(std::make_unique<LaneState>(*this, spec, kernels, max_rows, threads));
  }
}

HostCompute::~HostCompute() = default;

void HostCompute::Begin(int lane, int64_t first_row, const CheckedBatch& batch, MlaForm form) {
  LaneState& state = *lanes_[static_cast<size_t>(lane)];
  state.batch = &batch;
  state.form = form;
  state.context.activations.residual = Buffer<float>::View(residual_.get() + first_row * spec_.hidden_size);
}

HandOver HostCompute::hand_over(int lane) const {
  LaneState& state = *lanes_[static_cast<size_t>(lane)];
  Activations& a = state.context.activations;
  return {a.normed_narrow.get(), a.choices.data(), state.sums.get()};
}

// What kernels capture is two words, which std::function stores without allocating.
absl::Status HostCompute::Embed(int lane, device::Stream& stream) {
  return stream.Launch({.name = "embed", .cost = {}, .run = [this, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
                          EmbedRows(state.context, rope_, weights_.embedding, state.batch->rows);
                          return absl::OkStatus();
                        }});
}

absl::Status HostCompute::Attend(int lane, int64_t layer, device::Stream& stream) {
  return stream.Launch(
      {.name = "attend", .cost = {}, .run = [layer, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         return state.compute.RunAttend(state, layer);
       }});
}

absl::Status HostCompute::Shared(int lane, int64_t layer, device::Stream& stream) {
  const MlpWeights& mlp = weights_.layers[layer].feed_forward.always;
  return stream.Launch(
      {.name = "shared expert", .cost = {}, .run = [&mlp, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         state.compute.RunShared(state, mlp);
         return absl::OkStatus();
       }});
}

absl::Status HostCompute::Combine(int lane, int64_t layer, device::Stream& stream) {
  const MlpWeights& mlp = weights_.layers[layer].feed_forward.always;
  return stream.Launch(
      {.name = "combine", .cost = {}, .run = [&mlp, &state = *lanes_[static_cast<size_t>(lane)]](void*) {
         state.compute.RunCombine(state, mlp);
         return absl::OkStatus();
       }});
}

absl::Status HostCompute::RunAttend(LaneState& state, int64_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  RunAttention(state.context, weights.attention, layer, *state.batch, state.form);
  return spec_.IsMoeLayer(layer) ? NormAndRoute(state.context, weights.feed_forward, state.rows())
                                 : RunFeedForward(state.context, weights.feed_forward, state.rows());
}

void HostCompute::RunShared(LaneState& state, const MlpWeights& mlp) {
  const int64_t width = mlp.gate.rows;
  if (width == 0) return;
  Activations& a = state.context.activations;
  const LinearInput x{a.normed_narrow.get(), spec_.hidden_size, state.rows()};
  const LinearJob gate_and_up[] = {{mlp.gate, x, state.gate.get()}, {mlp.up, x, state.up.get()}};
  RunLinears(state.context, gate_and_up);
  state.pool.Run(state.rows(), [&](int64_t row, int) {
    kernels_.silu_mul(state.gate.get() + row * width, state.up.get() + row * width, width,
                      a.always_gated.get() + row * RowStride(width));
  });
  const LinearJob down[] = {{mlp.down, {a.always_gated.get(), RowStride(width), state.rows()}, state.shared.get()}};
  RunLinears(state.context, down);
}

// In the engine's order: the shared expert is added to the sum of the others, and that to the residual.
void HostCompute::RunCombine(LaneState& state, const MlpWeights& mlp) {
  const int64_t numbers = state.rows() * spec_.hidden_size;
  if (mlp.gate.rows > 0) kernels_.axpy(1.0f, state.shared.get(), numbers, state.sums.get());
  kernels_.axpy(1.0f, state.sums.get(), numbers, state.context.activations.residual.get());
}

absl::Status HostCompute::Logits(std::span<const EngineRow> rows, device::Stream& stream,
                                 absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  EngineContext& context = lanes_[0]->context;
  return ForRowsWithLogits(rows, [&](std::span<const int64_t> wanted) -> absl::Status {
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "head", .cost = {}, .run = [this, &wanted](void*) {
                                         NormHeadInput(lanes_[0]->context, weights_.final_norm, residual_.get(),
                                                       wanted);
                                         RunHead(lanes_[0]->context, {weights_.head, 0}, std::ssize(wanted));
                                         return absl::OkStatus();
                                       }}));
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    return FinishLogits(context, rows, wanted, on_logits);
  });
}

}  // namespace moestro
