// How much of the shorter of loading and computing a streamed run hides behind the longer: wall / max(load, compute).
// Copies have a fixed bandwidth, kernels sleep: so the pipeline is measured, not this machine. The same runs on a
// simulated device say what it would take if threads cost nothing.
//
// stream_overlap_bench DIRECTORY writes overlap.md, overlap.json and the timeline of one run there.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/device/host/host_device.h"
#include "common/device/host/pacer.h"
#include "common/device/sim/sim_device.h"
#include "common/model/binding.h"
#include "common/report/files.h"
#include "common/report/table.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::prefill {
namespace {

constexpr int64_t kDeviceBytes = int64_t{1} << 30;
constexpr double kCopyBytesPerSecond = 250e6;  // an expert takes 1.6 ms: far longer than a thread needs to wake up
constexpr double kTarget = 1.10;
constexpr int kRounds = 3;

struct BenchSetting {
  int64_t ring_slots = 2;
  double compute_over_load = 1;
  double attention_share = 0;  // of computing; the rest is spread as the weights are
};

// Every step sleeps for its part of compute_over_load times what loading the model takes.
class SleepCompute final : public engine::PrefillCompute {
 public:
  SleepCompute(const BenchSetting& setting, const std::vector<engine::Module>& modules) : setting_(setting) {
    for (const engine::Module& module : modules) {
      model_bytes_ += static_cast<double>(module.image.bytes);
      attentions_ += module.kind == engine::ModuleKind::kAttention ? 1 : 0;
    }
  }

  double total_seconds() const { return setting_.compute_over_load * model_bytes_ / kCopyBytesPerSecond; }

  int64_t ActivationBytes(int64_t) const override { return 0; }
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const engine::PromptRun&) override { return absl::OkStatus(); }
  absl::Status Launch(const engine::LayerStep& step, std::span<const engine::StagedModule> modules,
                      device::Stream& stream, const std::atomic<bool>&) override {
    double share = step.kind == engine::StepKind::kAttention ? setting_.attention_share / attentions_ : 0;
    // The router's weights are the shared expert's too, and count once.
    for (const engine::StagedModule& m : modules) {
      if (step.kind == engine::StepKind::kRoute) continue;
      share += (1 - setting_.attention_share) * static_cast<double>(m.module->image.bytes) / model_bytes_;
    }
    const double seconds = share * total_seconds();
    return stream.Launch({.name = engine::StepName(step.kind),
                          .cost = {.elementwise_bytes = seconds, .kernels = 0},
                          .run = [this, seconds](void*) {
                            pacer_.SleepFrom(device::SteadyClock().Now(), seconds);
                            return absl::OkStatus();
                          }});
  }
  absl::Status Store(const engine::LayerStep&, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Logits(absl::FunctionRef<void(int64_t, std::span<const float>)>) override { return absl::OkStatus(); }
  void End() override {}

 private:
  const BenchSetting setting_;
  double model_bytes_ = 0;
  double attentions_ = 0;
  device::Pacer pacer_{device::SteadyClock()};
};

// A second of its memory bandwidth is a second.
device::HardwareSpec Machine() {
  return {.name = "sleeping kernels",
          .gpu_memory_bytes = static_cast<double>(kDeviceBytes),
          .gpu_memory_bytes_per_second = 1,
          .gpu_processors = 1,
          .fp8_flops_per_second = 1,
          .bf16_flops_per_second = 1,
          .copy_bytes_per_second = kCopyBytesPerSecond};
}

weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallSpec();
  spec.hidden_size = 256;
  spec.moe_intermediate_size = 512;
  spec.num_layers = 6;
  spec.num_experts = 16;
  return spec;
}

// Seconds during which a copy and a kernel were in progress.
double BothBusy(const Timeline& timeline) {
  std::vector<Span> copies = timeline.lanes[Timeline::kLoads];
  std::ranges::sort(copies, {}, &Span::begin);
  double seconds = 0;
  for (const Span& kernel : timeline.lanes[Timeline::kModel]) {
    for (const Span& copy : copies) {
      seconds += std::max(0.0, std::min(kernel.end, copy.end) - std::max(kernel.begin, copy.begin));
    }
  }
  return seconds;
}

class Bench {
 public:
  PipelineReport Run(device::Device& device, SleepCompute& compute, const BenchSetting& setting) const {
    StreamPrefill prefill(device, model_.segment->spec(), weights_, compute,
                          {.dense_bytes = kDenseBytes, .ring_slots = setting.ring_slots});
    const std::vector<model::EngineRow> rows(1);
    const absl::Status status = prefill.Run(
        rows, {}, model::MlaForm::kUnabsorbed, [] { return absl::OkStatus(); }, {},
        [](int64_t, std::span<const float>) {});
    MOE_CHECK(status.ok());
    return prefill.report();
  }

  nlohmann::ordered_json Measure(const BenchSetting& setting) {
    SleepCompute compute(setting, modules_);
    const auto host =
        device::NewHostDevice({.memory_bytes = kDeviceBytes, .copy_bytes_per_second = kCopyBytesPerSecond});
    std::vector<PipelineReport> reports;
    for (int i = 0; i < kRounds; ++i) reports.push_back(Run(*host, compute, setting));
    std::ranges::sort(reports, {}, [](const PipelineReport& r) { return r.counters.wall_seconds; });
    report_ = reports[kRounds / 2];
    const auto sim = device::NewSimDevice(Machine());
    const double simulated = Run(*sim, compute, setting).counters.wall_seconds;
    const double load = static_cast<double>(report_.counters.streamed_bytes) / kCopyBytesPerSecond;
    const double wall = report_.counters.wall_seconds;
    const double longer = std::max(load, compute.total_seconds());
    return {{"ring_slots", setting.ring_slots},
            {"compute_over_load", setting.compute_over_load},
            {"attention_share", setting.attention_share},
            {"load_seconds", load},
            {"compute_seconds", compute.total_seconds()},
            {"wall_seconds", wall},
            {"stall_seconds", report_.counters.stall_seconds},
            {"both_busy_over_shorter", BothBusy(report_.timeline) / std::min(load, compute.total_seconds())},
            {"wall_over_longer", wall / longer},
            {"simulated_over_longer", simulated / longer}};
  }

  const PipelineReport& report() const { return report_; }  // the median of the last measurement

 private:
  static constexpr int64_t kDenseBytes = 4 << 20;

  const SyntheticSegment model_ = MakeSyntheticSegment({.spec = Spec()});
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const std::vector<engine::Module> modules_ =
      engine::ListModules(model_.segment->spec(), weights_, model::MlaForm::kUnabsorbed, kDenseBytes / 4);
  PipelineReport report_;
};

std::string Markdown(const nlohmann::ordered_json& results) {
  Table table{.columns = {"ring slots", "compute / load", "attention's share", "load s", "compute s", "wall s",
                          "both busy / shorter", "wall / longer", "simulated", "target"},
              .rows = {},
              .text_columns = 0};
  for (const auto& r : results["runs"]) {
    std::vector<std::string> cells = {absl::StrCat(r["ring_slots"].get<int64_t>())};
    for (const char* key : {"compute_over_load", "attention_share", "load_seconds", "compute_seconds", "wall_seconds",
                            "both_busy_over_shorter", "wall_over_longer", "simulated_over_longer"}) {
      cells.push_back(absl::StrFormat("%.3f", r[key].get<double>()));
    }
    cells.push_back(!r.contains("reached") ? "" : r["reached"].get<bool>() ? "pass" : "miss");
    table.rows.push_back(cells);
  }
  return absl::StrFormat(
      "# Overlap of loading and computing\n\n"
      "A streamed run on the `host` device: copies at %.0f MB/s, kernels that sleep, %d layers of %d experts; medians "
      "of %d runs.\n"
      "wall / longer: the time of the run over the longer of loading and computing; target ≤ %.2f wherever the ring "
      "can "
      "make up for\nuneven computing. simulated: the same on the `sim` device. timeline.json: 4 slots, as much "
      "computing as "
      "loading.\n\n%s",
      kCopyBytesPerSecond / 1e6, Spec().num_layers, Spec().num_experts, kRounds, kTarget, MarkdownTable(table));
}

absl::Status Main(const std::string& directory) {
  Bench bench;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  PipelineReport shown;
  for (const double attention_share : {0.0, 0.4}) {
    for (const int64_t slots : {2, 4, 16}) {
      for (const double factor : {0.25, 0.5, 0.8, 1.0, 1.25, 2.0}) {
        nlohmann::ordered_json run = bench.Measure({slots, factor, attention_share});
        // A short ring runs dry during attention that takes longer than what it holds: no pipeline can help.
        if (attention_share == 0 || slots == Spec().num_experts) run["reached"] = run["wall_over_longer"] <= kTarget;
        if (attention_share == 0 && slots == 4 && factor == 1) shown = bench.report();
        runs.push_back(run);
      }
    }
  }
  const nlohmann::ordered_json results = {{"target", kTarget}, {"runs", runs}};
  const std::string markdown = Markdown(results);
  std::printf("%s", markdown.c_str());
  constexpr const char* kWhere = "DIRECTORY";
  if (absl::Status s = MakeReportDirectory(kWhere, directory); !s.ok()) return s;
  if (absl::Status s = WriteReportFile(kWhere, directory + "/overlap.md", markdown); !s.ok()) return s;
  if (absl::Status s = WriteReportFile(kWhere, directory + "/overlap.json", results.dump(1) + "\n"); !s.ok()) return s;
  return WriteChromeTrace(shown.timeline, shown.begin, directory + "/timeline.json");
}

}  // namespace
}  // namespace moestro::prefill

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const absl::Status status = moestro::prefill::Main(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
