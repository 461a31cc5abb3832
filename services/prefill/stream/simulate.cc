#include "services/prefill/stream/simulate.h"

#include <vector>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/sim/sim_device.h"
#include "common/model/prompt_forward.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"
#include "services/prefill/stream/costs.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro {
namespace {

// Hands out addresses as the segment's writer lays tensors out.
class Layout {
 public:
  explicit Layout(DType linear) : linear_(linear) {}

  PackedMatrix Linear(int64_t rows, int64_t cols) { return Linear(linear_, rows, cols); }
  PackedMatrix Linear(DType dtype, int64_t rows, int64_t cols) {
    PackedMatrix matrix{.dtype = dtype, .rows = rows, .cols = cols};
    matrix.data = Take<uint8_t>(PackedBytes(dtype, rows, cols), kTensorAlignment);
    if (dtype == DType::kF8E4M3) {
      matrix.scales = Take<float>(TensorScaleBytes(rows, cols), kScaleAlignment);
      matrix.exceptions = Take<uint32_t>(TensorExceptionBytes(rows, cols), kScaleAlignment);
    }
    return matrix;
  }
  const float* Floats(int64_t count) { return Take<float>(4 * count, kTensorAlignment); }
  const uint16_t* Narrow(int64_t count) { return Take<uint16_t>(2 * count, kTensorAlignment); }
  MlpWeights Mlp(int64_t hidden, int64_t width) {
    return {Linear(width, hidden), Linear(width, hidden), Linear(hidden, width)};
  }

 private:
  template <typename T>
  const T* Take(int64_t bytes, int64_t alignment) {
    const int64_t address = RoundUp(next_, alignment);
    next_ = address + bytes;
    return reinterpret_cast<const T*>(address);
  }

  const DType linear_;
  int64_t next_ = kTensorAlignment;
};

}  // namespace

ModelWeights ShapesOnly(const ModelSpec& spec, DType linear) {
  Layout layout(linear);
  ModelWeights weights;
  weights.embedding = layout.Narrow(spec.vocab_size * spec.hidden_size);
  weights.final_norm = layout.Floats(spec.hidden_size);
  weights.head = layout.Linear(DType::kBF16, spec.vocab_size, spec.hidden_size);
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    AttentionWeights& attention = layer.attention;
    attention.input_norm = layout.Floats(spec.hidden_size);
    if (spec.q_lora_rank > 0) {
      attention.q_a = layout.Linear(spec.q_lora_rank, spec.hidden_size);
      attention.q_a_norm = layout.Floats(spec.q_lora_rank);
    }
    attention.q_b =
        layout.Linear(spec.num_heads * spec.qk_head_dim(), spec.q_lora_rank > 0 ? spec.q_lora_rank : spec.hidden_size);
    if (spec.has_grouped_queries()) {
      attention.k = layout.Linear(spec.num_kv_heads * spec.v_head_dim, spec.hidden_size);
      attention.v = layout.Linear(spec.num_kv_heads * spec.v_head_dim, spec.hidden_size);
      attention.q_norm = layout.Floats(spec.v_head_dim);
      attention.k_norm = layout.Floats(spec.v_head_dim);
    } else {
      attention.kv_a = layout.Linear(spec.kv_dim(), spec.hidden_size);
      attention.kv_a_norm = layout.Floats(spec.kv_lora_rank);
      attention.kv_b = layout.Linear(spec.num_heads * (spec.qk_nope_head_dim + spec.v_head_dim), spec.kv_lora_rank);
      attention.key_transposed = layout.Linear(spec.num_heads * spec.kv_lora_rank, spec.qk_nope_head_dim);
    }
    attention.o = layout.Linear(spec.hidden_size, spec.num_heads * spec.v_head_dim);
    FeedForwardWeights& mlps = layer.feed_forward;
    mlps.norm = layout.Floats(spec.hidden_size);
    if (!spec.IsMoeLayer(i)) {
      mlps.always = layout.Mlp(spec.hidden_size, spec.intermediate_size);
      continue;
    }
    mlps.router = layout.Floats(spec.num_experts * spec.hidden_size);
    if (spec.softmax_router == 0) mlps.bias = layout.Floats(spec.num_experts);
    if (spec.num_shared_experts > 0) mlps.always = layout.Mlp(spec.hidden_size, spec.shared_intermediate_size());
    for (int64_t e = 0; e < spec.num_experts; ++e) {
      mlps.experts.push_back(layout.Mlp(spec.hidden_size, spec.moe_intermediate_size));
    }
  }
  return weights;
}

int64_t SimCompute::ActivationBytes(int64_t pass_rows) const {
  return PromptForwardBytes(spec_, /*threads=*/0,
                            {.max_rows = pass_rows, .tile_rows = std::min(kGpuTileRows, pass_rows)});
}

absl::Status SimCompute::Begin(const PromptRun& run) {
  run_ = run;
  return absl::OkStatus();
}

absl::Status SimCompute::Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                                const std::atomic<bool>&) {
  StepLoad load = PassLoad(run_, step.pass);
  load.expert_spread = expert_spread_;
  return stream.Launch(
      {.name = StepName(step.kind), .cost = StepCost(spec_, weights_, run_.form, load, step, modules), .run = {}});
}

absl::Status SimCompute::Store(const Step& step, device::Stream& stream) {
  constexpr int64_t kBytes = 2;  // BF16
  return stream.CopyToHost(nullptr, nullptr, run_.PassRows(step.pass).size() * spec_.kv_dim() * kBytes);
}

absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                                 DType linear, MlaForm form, int64_t tokens, const MemoryLimits& limits,
                                                 double expert_spread) {
  const std::unique_ptr<device::Device> device = device::NewSimDevice(hardware);
  const ModelWeights weights = ShapesOnly(spec, linear);
  SimCompute compute(spec, weights, expert_spread);
  StreamPrefill prefill(*device, spec, weights, compute, limits);
  std::vector<EngineRow> rows(tokens);
  for (int64_t i = 0; i < tokens; ++i) rows[i].position = static_cast<int32_t>(i);
  SimulatedPrefill result;
  MOE_ASSIGN_OR_RETURN(result.plan, prefill.Plan(tokens, form));
  MOE_RETURN_IF_ERROR(prefill.Run(
      rows, {}, form, [] { return absl::OkStatus(); }, {}, [](int64_t, std::span<const float>) {}));
  result.report = prefill.report();
  return result;
}

}  // namespace moestro
