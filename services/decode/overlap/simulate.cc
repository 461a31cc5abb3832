#include "services/decode/overlap/simulate.h"

#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/sim/sim_device.h"
#include "common/model/attention.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/overlap/split.h"

namespace moestro {
namespace {

using device::KernelCost;

// Launches of a layer's kernels: norms, products, rotation, cache, attention in two parts, router, choice.
constexpr int64_t kAttentionKernels = 14;
constexpr int64_t kMlpKernels = 3;

// A product of rows with FP8 weights that are read once.
void AddLinear(int64_t outputs, int64_t inputs, int64_t rows, KernelCost& cost) {
  const auto weights = static_cast<double>(outputs * inputs);
  cost.fp8_flops += 2 * weights * static_cast<double>(rows);
  cost.memory_bytes += weights;
}

KernelCost MlpCost(const ModelSpec& spec, int64_t width, int64_t rows) {
  KernelCost cost{.kernels = kMlpKernels};
  AddLinear(3 * width, spec.hidden_size, rows, cost);
  return cost;
}

class SimulatedCompute final : public DecodeCompute {
 public:
  explicit SimulatedCompute(const ModelSpec& spec) : spec_(spec) {}

  void Begin(int lane, int64_t, const CheckedBatch& batch, MlaForm) override {
    State& state = lanes_[static_cast<size_t>(lane)];
    state = {.rows = batch.size()};
    for (const EngineRow& row : batch.rows) state.visible += row.position + 1;
  }
  absl::Status Embed(int lane, device::Stream& stream) override {
    return Launch({.elementwise_bytes = static_cast<double>(Rows(lane) * spec_.hidden_size * 6)}, stream);
  }
  absl::Status Attend(int lane, int64_t layer, device::Stream& stream) override {
    const int64_t rows = Rows(lane);
    KernelCost products{.kernels = kAttentionKernels};
    const int64_t queries = spec_.num_heads * spec_.qk_head_dim();
    if (spec_.q_lora_rank > 0) AddLinear(spec_.q_lora_rank, spec_.hidden_size, rows, products);
    AddLinear(queries, spec_.q_lora_rank > 0 ? spec_.q_lora_rank : spec_.hidden_size, rows, products);
    AddLinear(spec_.kv_dim(), spec_.hidden_size, rows, products);
    AddLinear(spec_.num_heads * (spec_.qk_nope_head_dim + spec_.v_head_dim), spec_.kv_lora_rank, rows, products);
    AddLinear(spec_.hidden_size, spec_.num_heads * spec_.v_head_dim, rows, products);
    if (spec_.IsMoeLayer(layer))
      products.memory_bytes += 4 * static_cast<double>(spec_.num_experts * spec_.hidden_size);
    MOE_RETURN_IF_ERROR(Launch(products, stream));
    const auto visible = static_cast<double>(lanes_[static_cast<size_t>(lane)].visible);
    const auto pair = static_cast<double>(spec_.num_heads * PairProducts(spec_, MlaForm::kAbsorbed));
    MOE_RETURN_IF_ERROR(Launch({.attention_flops = 2 * pair * visible,
                                .memory_bytes = 2 * static_cast<double>(spec_.kv_dim()) * visible,
                                .kernels = 0},
                               stream));
    return spec_.IsMoeLayer(layer) ? absl::OkStatus() : Launch(MlpCost(spec_, spec_.intermediate_size, rows), stream);
  }
  absl::Status Shared(int lane, int64_t, device::Stream& stream) override {
    return Launch(MlpCost(spec_, spec_.shared_intermediate_size(), Rows(lane)), stream);
  }
  absl::Status Combine(int lane, int64_t, device::Stream& stream) override {
    return Launch({.elementwise_bytes = static_cast<double>(Rows(lane) * spec_.hidden_size * 16)}, stream);
  }
  HandOver hand_over(int) const override { return {}; }
  absl::Status Logits(std::span<const EngineRow>, device::Stream& stream,
                      absl::FunctionRef<void(int64_t, std::span<const float>)>) override {
    MOE_RETURN_IF_ERROR(
        Launch({.memory_bytes = 2 * static_cast<double>(spec_.vocab_size * spec_.hidden_size)}, stream));
    return stream.Synchronize();
  }

 private:
  struct State {
    int64_t rows = 0;
    int64_t visible = 0;  // pairs of a row and a token that it sees
  };
  int64_t Rows(int lane) const { return lanes_[static_cast<size_t>(lane)].rows; }
  static absl::Status Launch(const KernelCost& cost, device::Stream& stream) {
    return stream.Launch({.name = "simulated", .cost = cost, .run = {}});
  }

  const ModelSpec& spec_;
  std::array<State, kMaxLanes> lanes_;
};

// As long as it takes to read every expert that some row takes.
class SimulatedExperts final : public RoutedExperts {
 public:
  SimulatedExperts(const device::HardwareSpec& hardware, const ModelSpec& spec, device::Device& device)
      : bytes_per_second_(hardware.cpu_memory_bytes_per_second * hardware.cpu_memory_fraction),
        spec_(spec),
        device_(device) {}

  absl::Status Run(int64_t, int64_t count, const HandOver&) override {
    const auto experts = static_cast<double>(spec_.num_experts);
    const double untaken = std::pow(1 - static_cast<double>(spec_.experts_per_token) / experts, count);
    const auto bytes = static_cast<double>(3 * spec_.hidden_size * spec_.moe_intermediate_size);
    device_.AdvanceTo(device_.Now() + experts * (1 - untaken) * bytes / bytes_per_second_);
    return absl::OkStatus();
  }

 private:
  const double bytes_per_second_;
  const ModelSpec& spec_;
  device::Device& device_;
};

}  // namespace

absl::StatusOr<double> SimulateDecodeStep(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                          int64_t sequences, int64_t context, int lanes) {
  if (hardware.cpu_memory_bytes_per_second <= 0 || hardware.cpu_memory_fraction <= 0 ||
      hardware.decode_memory_fraction <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(hardware.name,
                     ": decode needs 'cpu_memory_bytes_per_second', 'cpu_memory_fraction' and 'decode_memory_fraction' "
                     "of the machine"));
  }
  device::HardwareSpec decode = hardware;
  decode.memory_fraction = hardware.decode_memory_fraction;
  const std::unique_ptr<device::Device> device = device::NewSimDevice(decode);
  SimulatedCompute compute(spec);
  SimulatedExperts experts(hardware, spec, *device);
  const SplitPolicy split = [lanes](const CheckedBatch& batch) {
    return lanes == 1 ? batch.runs.size() : SplitRuns(batch);
  };
  MOE_ASSIGN_OR_RETURN(const auto forward,
                       HybridForward::Create(spec, *device, compute, experts, {.max_rows = sequences, .split = split}));
  // Pages of which nobody reads more than their number.
  const std::vector<uint32_t> list(static_cast<size_t>(CeilDiv(context + 1, kPageTokens)));
  const KvGeometry geometry{.num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .page_count = std::ssize(list)};
  const std::vector<KvPages> pages(static_cast<size_t>(sequences), KvPages(geometry, nullptr, list));
  std::vector<EngineRow> rows;
  for (int32_t i = 0; i < sequences; ++i) rows.push_back({.position = static_cast<int32_t>(context), .sequence = i});
  MOE_RETURN_IF_ERROR(forward->Forward(
      {rows, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {}));
  return device->Now();
}

}  // namespace moestro
