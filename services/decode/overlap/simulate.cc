#include "services/decode/overlap/simulate.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/sim/sim_device.h"
#include "common/device/sim/world.h"
#include "common/engine/sim/sim_decode.h"
#include "common/model/attention/attention.h"
#include "common/roofline/work_count.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/overlap/split.h"

namespace moestro::decode {
namespace {

// As long as it takes to read every expert that some row takes.
class SimulatedExperts final : public engine::RoutedExperts {
 public:
  SimulatedExperts(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                   const roofline::ModelCount& count, device::World& world, std::optional<device::World::Share> memory)
      : seconds_per_byte_(1 / (hardware.cpu_memory_bytes_per_second * hardware.cpu_memory_fraction)),
        wait_per_byte_(memory ? seconds_per_byte_ - 1 / hardware.cpu_read_bytes_per_second : seconds_per_byte_),
        workers_(world.Turns("workers")),
        memory_(memory),
        spec_(spec),
        expert_bytes_(count.expert_bytes()),
        world_(world) {}

  absl::Status Run(int64_t, int64_t count, const engine::ExpertIo&) override {
    const auto experts = static_cast<double>(spec_.num_experts);
    const double untaken = std::pow(1 - static_cast<double>(spec_.experts_per_token) / experts, count);
    const double bytes = experts * (1 - untaken) * expert_bytes_;
    if (memory_) {
      const device::World::Amount read[] = {{*memory_, bytes}};
      world_.AdvanceTo(world_.Take(world_.Now(), {}, read));
    }
    const device::World::Turn wait[] = {{workers_, bytes * wait_per_byte_}};
    world_.AdvanceTo(world_.Take(world_.Now(), wait));
    return absl::OkStatus();
  }

 private:
  const double seconds_per_byte_;
  const double wait_per_byte_;  // of it, where the memory is shared: without reading
  const size_t workers_;        // turns
  const std::optional<device::World::Share> memory_;
  const weights::ModelSpec& spec_;
  const double expert_bytes_;  // of one
  device::World& world_;
};

absl::StatusOr<double> Simulate(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                const roofline::ModelCount& model, const DecodeLoad& load, device::World& world,
                                std::optional<device::World::Share> cpu_memory) {
  const double experts_read = hardware.cpu_memory_bytes_per_second * hardware.cpu_memory_fraction;
  if (experts_read <= 0 || hardware.decode_memory_fraction <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(hardware.name,
                     ": decode needs the machine's 'levels.cpu.memory_bytes_per_second', "
                     "'levels.cpu.experts_memory_fraction' and 'levels.gpu.decode_memory_fraction'"));
  }
  if (cpu_memory && hardware.cpu_read_bytes_per_second < experts_read) {
    return absl::InvalidArgumentError(absl::StrCat(
        hardware.name, ": decode beside a prompt needs the machine's 'levels.cpu.read_bytes_per_second', at ",
        "least 'experts_memory_fraction' of 'memory_bytes_per_second'"));
  }
  device::HardwareSpec decode = hardware;
  decode.memory_fraction = hardware.decode_memory_fraction;
  if (hardware.decode_attention_fraction > 0) decode.attention_fraction = hardware.decode_attention_fraction;
  const std::unique_ptr<device::Device> device = device::NewSimDevice(decode, {world, "decode"});
  engine::SimDecode compute(*device, spec, model);
  SimulatedExperts experts(hardware, spec, model, world, cpu_memory);
  const SplitPolicy split = [&load](const model::CheckedBatch& batch) {
    return load.lanes == 1 ? batch.runs.size() : SplitRuns(batch);
  };
  MOE_ASSIGN_OR_RETURN(const auto forward, HybridForward::Create(spec, *device, compute, experts,
                                                                 {.max_rows = load.sequences, .split = split}));
  // Pages of which nobody reads more than their number.
  const std::vector<uint32_t> list(static_cast<size_t>(CeilDiv(load.context + load.steps, kv::kPageTokens)));
  const kv::KvGeometry geometry{.num_layers = spec.num_layers,
                                .kv_dim = spec.kv_dim(),
                                .kv_heads = spec.num_kv_heads,
                                .page_count = std::ssize(list)};
  const std::vector<kv::KvPages> pages(static_cast<size_t>(load.sequences), kv::KvPages(geometry, nullptr, list));
  for (int64_t step = 0; step < load.steps; ++step) {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < load.sequences; ++i) {
      rows.push_back({.position = static_cast<int32_t>(load.context + step), .sequence = i});
    }
    MOE_RETURN_IF_ERROR(forward->Forward(
        {rows, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {}));
  }
  return device->Now();
}

}  // namespace

absl::StatusOr<double> SimulateDecode(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                      const roofline::ModelCount& model, const DecodeLoad& load) {
  device::World world;
  return Simulate(hardware, spec, model, load, world, {});
}

absl::StatusOr<double> SimulateDecode(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                      const roofline::ModelCount& model, const DecodeLoad& load, device::World& world,
                                      device::World::Share experts) {
  return Simulate(hardware, spec, model, load, world, experts);
}

absl::StatusOr<double> SimulateDecodeStep(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                          int64_t sequences, int64_t context, int lanes) {
  return SimulateDecode(hardware, spec, roofline::CountModel(spec, DType::kF8E4M3),
                        {.sequences = sequences, .context = context, .lanes = lanes});
}

}  // namespace moestro::decode
