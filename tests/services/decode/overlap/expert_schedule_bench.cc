// Decode with a cache of some of a model's experts, under every schedule, on the host's device with a bus of a given
// bandwidth: seconds of a step, and what plans said. Prints JSON.
//
//   expert_schedule_bench CHECKPOINT [--cache-ratio 0.25] [--copy-rate BYTES_PER_SECOND] [--cpu-kernels ISA]
//                         [--sequences 1] [--rows 1] [--steps 100]
//
// CPU and device have a core each. With slower kernels for the CPU's experts, the device is as many times as fast as a
// GPU is; then it rounds otherwise, and what it computes changes the last bits. All schedules decode the same sequences
// from the same prompts, so they route the same tokens to the same experts. They take turns every few steps, so what
// slows the machine down slows all of them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/device/host/host_device.h"
#include "common/engine/host/host_decode.h"
#include "common/kernels/dispatch.h"
#include "common/process/flags.h"
#include "common/report/build_info.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/overlap/measure.h"
#include "services/decode/overlap/scheduled_experts.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

using experts::Policy;
using experts::Schedule;

constexpr int64_t kPromptSteps = 16;
constexpr int64_t kWarmUpSteps = 20;  // in which caches fill
constexpr int64_t kStepsOfATurn = 5;

struct Flags {
  std::string checkpoint;
  double cache_ratio = 0.25;
  double copy_rate = 0;
  std::string cpu_kernels;  // empty: the device's
  int64_t sequences = 1;
  int64_t rows = 1;
  int64_t steps = 100;

  int64_t rows_of_a_step() const { return sequences * rows; }
};

int64_t TokensOfASequence(const Flags& flags) { return flags.rows * (kPromptSteps + kWarmUpSteps + flags.steps); }

// One schedule with its device, its caches and its sequences.
class Arm {
 public:
  Arm(std::string name, const ScheduledExperts::Options& arm, const Flags& flags, const weights::ModelSpec& spec,
      const model::ModelWeights& weights, const CpuKernels& kernels, const CpuKernels& cpu_kernels, bool is_measured)
      : name_(std::move(name)), spec_(spec), sequences_(flags.sequences), rows_(flags.rows) {
    device_ = device::NewHostDevice({.memory_bytes = int64_t{8} << 30, .copy_bytes_per_second = flags.copy_rate});
    const int64_t max_rows = flags.rows_of_a_step();
    compute_ = std::make_unique<engine::HostDecode>(spec, weights, kernels, max_rows, /*threads=*/1,
                                                    /*hot_rows=*/max_rows);
    cpu_ = std::make_unique<CpuExperts>(spec, weights, cpu_kernels, pool_, max_rows);
    const auto slots = static_cast<int64_t>(flags.cache_ratio * static_cast<double>(spec.num_experts));
    ScheduledExperts::Options options = arm;
    options.budget_bytes = (slots * spec.num_moe_layers() + arm.most_loads) * DeviceExpertBytes(spec, weights);
    options.max_rows = max_rows;
    auto scheduled =
        ScheduledExperts::Create(spec, weights, cpu_kernels, pool_, *cpu_, *compute_, *device_, options).value();
    if (is_measured) MOE_CHECK(scheduled->MeasureCosts(*device_).ok());
    scheduled_ = std::move(scheduled);
    const SplitPolicy whole = [](const model::CheckedBatch& batch) { return batch.runs.size(); };
    forward_ =
        HybridForward::Create(spec, *device_, *compute_, *scheduled_, {.max_rows = max_rows, .split = whole}).value();
    if (is_measured) {  // as decode does at its start
      experts::ExpertCosts costs = scheduled_->costs();
      MeasureCosts(*forward_, max_rows).value().AddTo(costs);
      scheduled_->SetCosts(costs);
      scheduled_->Forget();
    }
    for (int64_t i = 0; i < flags.sequences; ++i) {
      const int64_t most = TokensOfASequence(flags);
      caches_.emplace_back(spec, most);
      pages_.push_back(caches_.back().pages());
      const int64_t given = rows_ > 1 ? most : kPromptSteps;
      tokens_.push_back(model::RandomTokens(given, spec.token_count, static_cast<uint64_t>(i)));
    }
    for (int64_t i = 0; i < kPromptSteps; ++i) Step();
  }

  // The next rows of every sequence: of its prompt, or behind that the likeliest token. Returns its seconds.
  double Step() {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < sequences_; ++i) {
      for (int64_t at = position_; at < position_ + rows_; ++at) {
        rows.push_back({.token = tokens_[static_cast<size_t>(i)][static_cast<size_t>(at)],
                        .position = static_cast<int32_t>(at),
                        .sequence = i,
                        .needs_logits = at + 1 == position_ + rows_});
      }
    }
    const double begin = device_->Now();
    const absl::Status status =
        forward_->Forward({rows, pages_, model::MlaForm::kAbsorbed}, model::NeverInterrupted,
                          [&](int64_t row, std::span<const float> logits) {
                            const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
                            auto& tokens = tokens_[static_cast<size_t>(row / rows_)];
                            if (position_ + rows_ == std::ssize(tokens) && rows_ == 1) tokens.push_back(best);
                            likeliest_.push_back(best);
                          });
    const double seconds = device_->Now() - begin;
    MOE_CHECK(status.ok());
    position_ += rows_;
    return seconds;
  }
  void Turn() {
    for (int64_t i = 0; i < kStepsOfATurn; ++i) seconds_.push_back(Step());
  }
  void Begin() { before_ = scheduled_->counts(); }

  // Of all steps and sequences.
  const std::vector<int32_t>& likeliest() const { return likeliest_; }
  const experts::ExpertCosts& costs() const { return scheduled_->costs(); }
  void SetCosts(const experts::ExpertCosts& costs) { scheduled_->SetCosts(costs); }

  nlohmann::ordered_json Json(double fixed_seconds) const {
    const ExpertCounts now = scheduled_->counts();
    const auto steps = static_cast<double>(seconds_.size());
    const double planned = now.planned_seconds - before_.planned_seconds;
    const double measured = now.measured_seconds - before_.measured_seconds;
    const auto uses = static_cast<double>(now.hits + now.misses - before_.hits - before_.misses);
    return {{"schedule", name_},
            {"median_step_seconds", MedianStep()},
            {"speed_over_fixed", fixed_seconds / MedianStep()},
            {"experts_planned_seconds_a_step", planned / steps},
            {"experts_measured_seconds_a_step", measured / steps},
            {"planned_over_measured", planned / measured},
            {"hit_rate", static_cast<double>(now.hits - before_.hits) / uses},
            {"share_on_device", static_cast<double>(now.on_device - before_.on_device) / uses},
            {"loads_a_step", static_cast<double>(now.loads - before_.loads) / steps},
            {"loads_ahead_a_step", static_cast<double>(now.loads_ahead - before_.loads_ahead) / steps},
            {"foreseen_hits_a_step", static_cast<double>(now.foreseen_hits - before_.foreseen_hits) / steps}};
  }
  double MedianStep() const {
    std::vector<double> sorted = seconds_;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

 private:
  const std::string name_;
  const weights::ModelSpec& spec_;
  const int64_t sequences_;
  const int64_t rows_;
  WorkerPool pool_{1};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<engine::HostDecode> compute_;
  std::unique_ptr<CpuExperts> cpu_;
  std::unique_ptr<ScheduledExperts> scheduled_;
  std::unique_ptr<HybridForward> forward_;
  std::vector<model::TestSequence> caches_;
  std::vector<kv::KvPages> pages_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<int32_t> likeliest_;
  int64_t position_ = 0;
  std::vector<double> seconds_;
  ExpertCounts before_;
};

int Main(int argc, char** argv) {
  Flags flags;
  ProgramFlags program("Decode under every schedule of experts, side by side");
  program.Add("checkpoint", flags.checkpoint, "Directory of a model").Required();
  program.Add("--cache-ratio", flags.cache_ratio, "Share of the experts that the device holds").Range(0.0, 1.0);
  program.Add("--copy-rate", flags.copy_rate, "Bytes per second of copies; 0: as memory").NonNegative();
  program.Add("--cpu-kernels", flags.cpu_kernels, "Of the CPU's experts, a name of MOESTRO_ISA; empty: the device's");
  program.Add("--sequences", flags.sequences, "That decode together").Range(1, 64);
  program.Add("--rows", flags.rows, "Tokens of each in a step; more than one: all are prompts").Range(1, 512);
  program.Add("--steps", flags.steps, "Of each schedule").Range(5, 10000);
  if (const std::optional<int> exit_code = program.Parse(argc, argv)) return *exit_code;

  const OwnedSegment owned = BuildSegmentInMemory(flags.checkpoint).value();
  const weights::ModelSpec& spec = owned.segment->spec();
  const int64_t longest = TokensOfASequence(flags);
  if (longest > spec.max_position_embeddings) {
    std::fprintf(stderr, "--rows %lld, --steps %lld: sequences of %lld tokens, but the model takes %lld\n",
                 static_cast<long long>(flags.rows), static_cast<long long>(flags.steps),
                 static_cast<long long>(longest), static_cast<long long>(spec.max_position_embeddings));
    return 2;
  }
  const model::ModelWeights weights = model::BindWeights(*owned.segment).value();
  const CpuKernels kernels = SelectKernels(Int8Activations::kPublished).value();
  CpuKernels cpu_kernels = kernels;
  for (const CpuKernels* table : EveryTestKernels()) {
    if (table->isa == flags.cpu_kernels) cpu_kernels = *table;
  }
  MOE_CHECK(flags.cpu_kernels.empty() || cpu_kernels.isa == flags.cpu_kernels);  // the CPU has them
  std::vector<std::unique_ptr<Arm>> arms;
  const auto add = [&](const char* name, const ScheduledExperts::Options& options) {
    arms.push_back(std::make_unique<Arm>(name, options, flags, spec, weights, kernels, cpu_kernels, arms.empty()));
    arms.back()->SetCosts(arms.front()->costs());
  };
  const int64_t k = spec.experts_per_token;
  add("fixed", {.schedule = Schedule::kFixed, .most_loads = 1});
  add("hybrid", {.schedule = Schedule::kHybrid, .most_loads = k});
  add("hybrid, mrs", {.schedule = Schedule::kHybrid, .policy = Policy::kMrs, .most_loads = k});
  add("hybrid, prefetch", {.schedule = Schedule::kHybrid, .most_loads = k, .prefetch_layers = 3});
  add("on-demand", {.schedule = Schedule::kOnDemand, .most_loads = k});
  if (flags.cache_ratio * static_cast<double>(spec.num_moe_layers()) >= 1) {
    add("first layers", {.schedule = Schedule::kFixed, .policy = Policy::kFirstLayers, .most_loads = 0});
  }

  for (int64_t step = 0; step < kWarmUpSteps; ++step) {
    for (const auto& arm : arms) arm->Step();
  }
  for (const auto& arm : arms) arm->Begin();
  for (int64_t step = 0; step < flags.steps; step += kStepsOfATurn) {
    for (const auto& arm : arms) arm->Turn();
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  bool same_tokens = true;
  for (const auto& arm : arms) {
    results.push_back(arm->Json(arms.front()->MedianStep()));
    same_tokens = same_tokens && arm->likeliest() == arms.front()->likeliest();
  }
  const experts::ExpertCosts& costs = arms.front()->costs();
  const nlohmann::ordered_json json = {{"revision", ThisBuild().revision},
                                       {"date", Today()},
                                       {"dirty", IsDirty(ThisBuild().revision)},
                                       {"device_kernels", kernels.isa},
                                       {"cpu_kernels", cpu_kernels.isa},
                                       {"cache_ratio", flags.cache_ratio},
                                       {"experts_of_a_layer", spec.num_experts},
                                       {"experts_per_token", spec.experts_per_token},
                                       {"layers_with_experts", spec.num_moe_layers()},
                                       {"expert_bytes", DeviceExpertBytes(spec, weights)},
                                       {"copy_bytes_per_second", flags.copy_rate},
                                       {"sequences", flags.sequences},
                                       {"rows_of_a_sequence", flags.rows},
                                       {"steps", flags.steps},
                                       {"costs",
                                        {{"host_seconds_a_row", costs.host.At(1)},
                                         {"host_start_seconds", costs.host_start},
                                         {"host_beside_factor", costs.host_beside},
                                         {"device_seconds_a_row", costs.device.At(1)},
                                         {"host_seconds_an_expert_of_4_rows", costs.host.At(4)},
                                         {"device_seconds_an_expert_of_4_rows", costs.device.At(4)},
                                         {"shared_expert_seconds", costs.shared.At(flags.rows_of_a_step())},
                                         {"device_start_seconds", costs.device_start},
                                         {"launch_seconds", costs.launch},
                                         {"load_seconds", costs.load},
                                         {"load_start_seconds", costs.load_start},
                                         {"seconds_between_experts", costs.between}}},
                                       {"same_tokens", same_tokens},
                                       {"schedules", results}};
  std::printf("%s\n", json.dump(2).c_str());
  return same_tokens || cpu_kernels.isa != kernels.isa ? 0 : 1;
}

}  // namespace
}  // namespace moestro::decode

int main(int argc, char** argv) { return moestro::decode::Main(argc, argv); }
