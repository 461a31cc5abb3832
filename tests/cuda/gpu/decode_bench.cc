// Times hybrid decode of MoE layers of DeepSeek-V3's geometry, with routed experts on this machine's CPU. Compares
// steps of one and two sequences with the schedule's prediction from their parts, each measured alone in the same run.
// Writes DIR/decode.json and DIR/decode.md, complete after each context.
//   cuda_decode_bench --out DIR
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_decode.h"
#include "common/kernels/dispatch.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/overlap/measure.h"
#include "tests/cuda/gpu/ceilings.h"
#include "tests/cuda/gpu/host_weights.h"
#include "tests/support/aligned_memory.h"

namespace moestro {
namespace {

constexpr int64_t kLayers = 4;
constexpr int64_t kSequences = 2;
constexpr int kRepeats = 20;

// Sequences with caches of zeros: their contents do not affect what is read.
class Sequences {
 public:
  Sequences(const weights::ModelSpec& spec, int64_t tokens)
      : geometry_{.num_layers = spec.num_layers,
                  .kv_dim = spec.kv_dim(),
                  .kv_heads = spec.num_kv_heads,
                  .page_count = kSequences * PagesOf(tokens)},
        memory_(geometry_.page_bytes() * geometry_.page_count),
        list_(static_cast<size_t>(geometry_.page_count)) {
    std::memset(memory_.data(), 0, static_cast<size_t>(geometry_.page_bytes() * geometry_.page_count));
    std::iota(list_.begin(), list_.end(), 0u);
  }
  static int64_t PagesOf(int64_t tokens) { return CeilDiv(tokens + kRepeats + 8, kv::kPageTokens); }
  std::vector<kv::KvPages> pages(uint64_t first_lease) const {
    std::vector<kv::KvPages> pages;
    const auto each = static_cast<size_t>(geometry_.page_count / kSequences);
    for (size_t i = 0; i < kSequences; ++i) {
      pages.emplace_back(geometry_, memory_.data(), std::span(list_).subspan(i * each, each), first_lease + i);
    }
    return pages;
  }

 private:
  kv::KvGeometry geometry_;
  AlignedMemory memory_;
  std::vector<uint32_t> list_;
};

// The shortest time of a step of the first `count` sequences, one token each, after `tokens` tokens.
absl::StatusOr<double> StepSeconds(device::Device& device, decode::HybridForward& forward,
                                   std::span<const kv::KvPages> pages, int64_t count, int64_t tokens) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < count; ++i) {
      rows.push_back({.token = (repeat * 7 + i * 13) % 1000,
                      .position = static_cast<int32_t>(tokens) + repeat,
                      .sequence = i,
                      .needs_logits = true});
    }
    const double begin = device.Now();
    MOE_RETURN_IF_ERROR(forward.Forward(
        {rows, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {}));
    if (repeat > 0) shortest = std::min(shortest, device.Now() - begin);  // the first step takes sequences over
  }
  return shortest;
}

void WriteMarkdown(const nlohmann::json& report, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  const auto number = [](const nlohmann::json& value) { return value.get<double>(); };
  const nlohmann::json& layer = report["layer_of_one_row"];
  std::fprintf(file,
               "\n## Hybrid decode, %d layers of DeepSeek-V3's geometry, experts on %d threads (%s)\n\n"
               "A layer of one row: attention %.0f us, shared expert %.0f, routed experts %.0f, copies %.0f, waking "
               "%.0f. What the schedule says is made of these, without cached tokens: at 32768 it lacks attention's "
               "time for them.\n\n"
               "| context | one sequence | of sum | two, one batch | of sum | two batches | of schedule | gain |\n"
               "|---|---|---|---|---|---|---|---|\n",
               report["layers"].get<int>(), report["cpu_threads"].get<int>(),
               report["cpu_kernels"].get<std::string>().c_str(), 1e6 * number(layer["attend_seconds"]),
               1e6 * number(layer["shared_seconds"]), 1e6 * number(layer["experts_seconds"]),
               1e6 * number(layer["transfer_seconds"]), 1e6 * number(layer["sync_seconds"]));
  for (const nlohmann::json& run : report["runs"]) {
    std::fprintf(file, "| %d | %.2f ms | %.2f | %.2f ms | %.2f | %.2f ms | %.2f | %.2f |\n", run["context"].get<int>(),
                 1e3 * number(run["one_sequence_seconds"]), number(run["one_sequence_of_sum"]),
                 1e3 * number(run["two_in_one_batch_seconds"]), number(run["two_in_one_batch_of_sum"]),
                 1e3 * number(run["two_batches_seconds"]), number(run["two_batches_of_schedule"]),
                 number(run["overlap_ratio"]));
  }
  std::fclose(file);
}

void Write(const nlohmann::json& report, const std::string& out) {
  std::ofstream(out + "/decode.json") << report.dump(2) << "\n";
  WriteMarkdown(report, out + "/decode.md");
}

absl::Status Run(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                 const std::string& out) {
  constexpr int64_t kShort = 64, kLong = 32768;
  const CpuKernels& kernels = *AvailableKernels().back();
  WorkerPool workers(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 2));  // the lanes take two
  decode::CpuExperts experts(spec, weights, kernels, workers, kSequences);
  const engine::CudaDecodeOptions options{
      .max_rows = kSequences, .max_sequences = kSequences, .kv_pages = kSequences * Sequences::PagesOf(kLong)};
  MOE_ASSIGN_OR_RETURN(const auto compute, engine::CudaDecode::Create(device, spec, weights, options));
  size_t cut = 1;
  std::vector<std::atomic<bool>> chosen(static_cast<size_t>(spec.num_experts));  // chosen in any step
  const auto note_chosen = [&chosen](const model::LayerRouting& routing) {
    for (const model::ExpertChoice& choice : routing.choices) chosen[static_cast<size_t>(choice.expert)] = true;
  };
  MOE_ASSIGN_OR_RETURN(const auto forward,
                       decode::HybridForward::Create(spec, device, *compute, experts,
                                                     {.max_rows = kSequences,
                                                      .split = [&cut](const model::CheckedBatch&) { return cut; },
                                                      .on_routing = note_chosen}));
  MOE_ASSIGN_OR_RETURN(const decode::CostModel costs, decode::MeasureCosts(*forward, kSequences));
  const decode::LayerTimes layer = costs.At(1);
  nlohmann::json report{{"gpu", std::string(device.name())},
                        {"cpu_kernels", kernels.isa},
                        {"cpu_threads", workers.threads()},
                        {"layers", spec.num_layers},
                        {"layer_of_one_row",
                         {{"attend_seconds", layer.attend},
                          {"shared_seconds", layer.shared},
                          {"experts_seconds", layer.experts},
                          {"transfer_seconds", layer.transfer},
                          {"sync_seconds", layer.sync}}},
                        {"runs", nlohmann::json::array()}};
  Write(report, out);
  uint64_t lease = 1;
  for (const int64_t tokens : {kShort, kLong}) {
    const Sequences sequences(spec, tokens);
    const auto time = [&](int64_t count, size_t first) {
      cut = first;
      lease += kSequences;
      const std::vector<kv::KvPages> pages = sequences.pages(lease);
      return StepSeconds(device, *forward, pages, count, tokens);
    };
    MOE_ASSIGN_OR_RETURN(const double one, time(1, 1));
    MOE_ASSIGN_OR_RETURN(const double together, time(2, 2));
    MOE_ASSIGN_OR_RETURN(const double overlapped, time(2, 1));
    report["runs"].push_back({{"context", tokens},
                              {"one_sequence_seconds", one},
                              {"one_sequence_of_sum", one / costs.OneBatch(1)},
                              {"two_in_one_batch_seconds", together},
                              {"two_in_one_batch_of_sum", together / costs.OneBatch(2)},
                              {"two_batches_seconds", overlapped},
                              {"two_batches_of_schedule", overlapped / costs.TwoBatches(1, 1)},
                              {"overlap_ratio", together / overlapped},
                              {"throughput_of_one_sequence", 2 * one / overlapped}});
    // Steps that all choose the same experts would measure caches.
    const int64_t different =
        std::ranges::count_if(chosen, [](const std::atomic<bool>& taken) { return taken.load(); });
    if (different <= spec.experts_per_token) {
      return absl::InternalError("all tokens have taken the same experts: the weights make no sense");
    }
    report["different_experts"] = different;
    Write(report, out);
  }
  return absl::OkStatus();
}

absl::Status Main(const std::string& out) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::OpenCudaDevice({}));
  cuda::WarmUp();
  const weights::ModelSpec spec = DeepSeekV3Layers(kLayers);
  const HostWeights host(spec);
  return Run(*device, spec, host.weights, out);
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--out") {
    std::fprintf(stderr, "usage: cuda_decode_bench --out DIR\n");
    return 2;
  }
  const absl::Status status = moestro::Main(argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
