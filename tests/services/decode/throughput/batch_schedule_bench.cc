// Decode of a batch whose experts do not fit a device's memory, under every schedule, on the host's device with a bus
// of a given bandwidth: seconds of a step, what was forecast, and how busy each resource was. Prints JSON.
//
//   batch_schedule_bench CHECKPOINT [--copy-rate BYTES_PER_SECOND] [--device-memory BYTES] [--sequences 256]
//                        [--context 512] [--turns 5]
//
// CPU and device have a core each; copies sleep most of their time. All schedules decode the same sequences behind the
// same cached tokens, and must choose the same tokens. They take turns, so what slows the machine down slows all of
// them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/device/host/host_device.h"
#include "common/engine/host/host_batch.h"
#include "common/kernels/dispatch.h"
#include "common/process/flags.h"
#include "common/report/build_info.h"
#include "services/decode/throughput/batch_forward.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

constexpr int64_t kStepsOfATurn = 2;

struct Flags {
  std::string checkpoint;
  double copy_rate = 0;
  int64_t device_memory = 0;
  int64_t sequences = 256;
  int64_t context = 512;
  int64_t turns = 5;
};

// The sequences' tokens, and the cache before the first step: random keys and values of the context.
struct Sequences {
  Sequences(const weights::ModelSpec& spec, const Flags& flags) {
    std::mt19937 random(1);
    const int64_t tokens = flags.context + flags.turns * (1 + kStepsOfATurn);
    for (int64_t i = 0; i < flags.sequences; ++i) {
      caches.emplace_back(spec, tokens);
      pages.push_back(caches.back().pages());
      std::vector<uint16_t> entry(static_cast<size_t>(spec.kv_dim()));
      for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        pages.back().BeginBlocks(layer, 0, flags.context);
        for (int64_t position = 0; position < flags.context; ++position) {
          for (uint16_t& value : entry)
            value = static_cast<uint16_t>(0x3d00 + random() % 0x300 + (random() % 2) * 0x8000);
          pages.back().Store(layer, position, entry.data());
        }
      }
      next.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(spec.token_count)));
    }
  }
  std::vector<model::TestSequence> caches;
  std::vector<kv::KvPages> pages;
  std::vector<int32_t> next;  // token of the first step
};

// One schedule with its device.
class Arm {
 public:
  Arm(BatchSchedule schedule, const Flags& flags, const weights::ModelSpec& spec, const model::ModelWeights& weights,
      const CpuKernels& kernels, const Sequences& sequences)
      : schedule_(schedule), sequences_(sequences), next_(sequences.next), position_(flags.context) {
    device_ = device::NewHostDevice({.memory_bytes = flags.device_memory, .copy_bytes_per_second = flags.copy_rate});
    const auto make = [&](const model::ModelWeights& on_device) {
      return std::make_unique<engine::HostBatch>(spec, on_device, kernels, flags.sequences, /*threads=*/1);
    };
    const std::array<device::Device*, 1> devices = {device_.get()};
    forward_ =
        BatchForward::Create(spec, weights, kernels, pool_, devices, make,
                             {.max_rows = flags.sequences, .schedule = schedule, .memory_bytes = flags.device_memory})
            .value();
    MOE_CHECK(device_->memory_used() == forward_->device_bytes());
    forward_->set_costs(MeasureStepCosts(*forward_, flags.sequences).value(), /*choose=*/true);
  }

  // One token of every sequence.
  void Step() {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < std::ssize(next_); ++i) {
      rows.push_back({.token = next_[static_cast<size_t>(i)],
                      .position = static_cast<int32_t>(position_),
                      .sequence = i,
                      .needs_logits = true});
    }
    const absl::Status status = forward_->Forward(
        {rows, sequences_.pages}, model::NeverInterrupted, [&](int64_t row, std::span<const float> logits) {
          next_[static_cast<size_t>(row)] = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
        });
    MOE_CHECK(status.ok());
    ++position_;
    chosen_.insert(chosen_.end(), next_.begin(), next_.end());
  }
  void MeasuredStep() {
    Step();
    times_.push_back(forward_->times());
    forecasts_.push_back(forward_->forecast());
  }

  const std::vector<int32_t>& chosen() const { return chosen_; }
  double MedianStep() const {
    return Median(times_, [](const StepTimes& times) { return times.seconds; });
  }

  nlohmann::ordered_json Json(double best_seconds, const Flags& flags) const {
    const auto busy = [&](Resource resource) {
      return Median(times_, [=](const StepTimes& times) { return times.busy[static_cast<size_t>(resource)]; });
    };
    const auto json = [](auto of) -> nlohmann::ordered_json {
      return {{"device", of(Resource::kDevice)},
              {"host", of(Resource::kHost)},
              {"to_device", of(Resource::kToDevice)},
              {"to_host", of(Resource::kToHost)}};
    };
    const auto forecast_busy = [&](Resource resource) {
      return Median(forecasts_, [=](const StepForecast& of) { return of.busy[static_cast<size_t>(resource)]; });
    };
    const double forecast = Median(forecasts_, [](const StepForecast&of) { return of.seconds; }), step = MedianStep();
    const double busiest = std::max({busy(Resource::kDevice), busy(Resource::kHost), busy(Resource::kToDevice)});
    const double copy = static_cast<double>(forward_->pages().streamed_bytes()) / flags.copy_rate;
    return {{"schedule", WordOf(kBatchScheduleWords, schedule_)},
            {"median_step_seconds", step},
            {"tokens_per_second_of_the_layers", static_cast<double>(std::ssize(next_)) / step},
            {"seconds_over_cgopipe", step / best_seconds},
            {"micro_batches", forward_->tasks().shape.micro_batches},
            {"forecast_seconds", forecast},
            {"forecast_over_measured", forecast / step},
            {"busiest_over_step", busiest / step},
            {"weights_at_copy_rate_over_step", copy / step},
            {"busy_seconds", json(busy)},
            {"forecast_busy_seconds", json(forecast_busy)},
            {"experts_that_stay", forward_->pages().resident()},
            {"streamed_bytes_a_step", forward_->pages().streamed_bytes()},
            {"device_bytes", forward_->device_bytes()}};
  }

 private:
  static double Median(const auto& of, auto value) {
    std::vector<double> sorted;
    for (const auto& each : of) sorted.push_back(value(each));
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

  const BatchSchedule schedule_;
  const Sequences& sequences_;
  WorkerPool pool_{1};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<BatchForward> forward_;
  std::vector<int32_t> next_;
  int64_t position_;
  std::vector<int32_t> chosen_;
  std::vector<StepTimes> times_;
  std::vector<StepForecast> forecasts_;
};

int Main(int argc, char** argv) {
  Flags flags;
  ProgramFlags program("Decode of a batch whose experts stream to a device, under every schedule, side by side");
  program.Add("checkpoint", flags.checkpoint, "Directory of a model").Required();
  program.Add("--copy-rate", flags.copy_rate, "Bytes per second of copies in one direction").Required().Positive();
  program.Add("--device-memory", flags.device_memory, "Bytes of the device").Required().AsBytes();
  program.Add("--sequences", flags.sequences, "That decode together").Range(8, 8192);
  program.Add("--context", flags.context, "Tokens in the cache of each").Range(1, 65536);
  program.Add("--turns", flags.turns, "Of each schedule, of three steps").Range(1, 10000);
  if (const std::optional<int> exit_code = program.Parse(argc, argv)) return *exit_code;

  const OwnedSegment owned = BuildSegmentInMemory(flags.checkpoint).value();
  const weights::ModelSpec& spec = owned.segment->spec();
  const model::ModelWeights weights = model::BindWeights(*owned.segment).value();
  const CpuKernels kernels = SelectKernels(Int8Activations::kPublished).value();
  const Sequences sequences(spec, flags);
  std::vector<std::unique_ptr<Arm>> arms;
  for (const Choice<BatchSchedule>& word : kBatchScheduleWords) {
    arms.push_back(std::make_unique<Arm>(word.value, flags, spec, weights, kernels, sequences));
  }
  for (int64_t turn = 0; turn < flags.turns; ++turn) {
    for (const auto& arm : arms) {
      arm->Step();  // after the others': touches memory
      for (int64_t step = 0; step < kStepsOfATurn; ++step) arm->MeasuredStep();
    }
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  bool same_tokens = true;
  int64_t expert_bytes = 0;
  for (const auto& arm : arms) {
    results.push_back(arm->Json(arms.front()->MedianStep(), flags));
    same_tokens = same_tokens && arm->chosen() == arms.front()->chosen();
  }
  for (const engine::Module& module : engine::ListModules(spec, weights, model::MlaForm::kAbsorbed, int64_t{1} << 30)) {
    if (module.kind == engine::ModuleKind::kExpert) expert_bytes += module.image.bytes;
  }
  const nlohmann::ordered_json json = {{"revision", ThisBuild().revision},
                                       {"date", Today()},
                                       {"dirty", IsDirty(ThisBuild().revision)},
                                       {"kernels", kernels.isa},
                                       {"layers", spec.num_layers},
                                       {"experts_of_a_layer", spec.num_experts},
                                       {"experts_per_token", spec.experts_per_token},
                                       {"bytes_of_all_experts", expert_bytes},
                                       {"device_memory", flags.device_memory},
                                       {"copy_bytes_per_second", flags.copy_rate},
                                       {"sequences", flags.sequences},
                                       {"context", flags.context},
                                       {"measured_steps", flags.turns * kStepsOfATurn},
                                       {"same_tokens", same_tokens},
                                       {"schedules", results}};
  std::printf("%s\n", json.dump(2).c_str());
  return same_tokens ? 0 : 1;
}

}  // namespace
}  // namespace moestro::decode

int main(int argc, char** argv) { return moestro::decode::Main(argc, argv); }
