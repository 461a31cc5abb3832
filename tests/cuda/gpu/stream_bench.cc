// Times streamed prefill of mixture-of-experts layers of DeepSeek-V3's geometry, weights in pinned host memory, against
// what the machine allows: the weights' bytes at the bandwidth of pinned copies, the operations at the rate of mma,
// both measured in the same run. Writes DIR/stream.json and DIR/stream.md.
//   cuda_stream_bench --out DIR
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/pinning.h"
#include "services/prefill/stream/cuda/cuda_compute.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"
#include "tests/cuda/gpu/host_weights.h"
#include "tests/support/aligned_memory.h"

namespace moestro {
namespace {

constexpr int64_t kLayers = 3;  // the first one's weights arrive before anything is computed

// Multiplications and additions of a layer's products and attention.
struct Operations {
  double products = 0;
  double attention = 0;
};
Operations OperationsOf(const ModelSpec& spec, const LayerWeights& layer, int64_t tokens) {
  const AttentionWeights& a = layer.attention;
  const MlpWeights& expert = layer.feed_forward.experts[0];
  double weights = 0;  // that a token is multiplied with
  for (const PackedMatrix* m : {&a.q_a, &a.q_b, &a.kv_a, &a.kv_b, &a.o})
    weights += static_cast<double>(m->rows * m->cols);
  weights +=
      static_cast<double>(3 * expert.gate.rows * expert.gate.cols * (spec.experts_per_token + spec.num_shared_experts));
  const auto n = static_cast<double>(tokens);
  const auto per_pair = static_cast<double>(spec.num_heads * (spec.qk_head_dim() + spec.v_head_dim));
  return {2 * n * weights, 2 * per_pair * n * (n + 1) / 2};
}

struct Result {
  int64_t tokens = 0;
  PipelineReport report;
};

absl::StatusOr<Result> Time(device::Device& device, const ModelSpec& spec, const ModelWeights& weights,
                            int64_t tokens) {
  CudaCompute compute(device, spec, weights);
  StreamPrefill prefill(device, spec, weights, compute, {});
  std::vector<EngineRow> rows;
  for (int64_t i = 0; i < tokens; ++i) {
    rows.push_back({static_cast<int32_t>(i * 7 % spec.token_count), static_cast<int32_t>(i), 0, i + 1 == tokens});
  }
  const KvGeometry geometry{
      .num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .page_count = CeilDiv(tokens, kPageTokens)};
  const AlignedMemory kv(geometry.page_bytes() * geometry.page_count);
  std::vector<uint32_t> list(static_cast<size_t>(geometry.page_count));
  std::iota(list.begin(), list.end(), 0u);
  const KvPages pages[] = {KvPages(geometry, kv.data(), list)};
  bool all_equal = false;
  for (int run = 0; run < 2; ++run) {  // the first one loads kernels
    MOE_RETURN_IF_ERROR(prefill.Run(
        rows, pages, MlaForm::kUnabsorbed, [] { return absl::OkStatus(); }, {},
        [&](int64_t, std::span<const float> logits) {
          all_equal = std::ranges::count(logits, logits[0]) == std::ssize(logits);
        }));
  }
  // Of such weights all tokens take the same experts.
  if (all_equal) return absl::InternalError("all logits are equal: the weights make no sense");
  return Result{tokens, prefill.report()};
}

struct Ceilings {
  double copy_bytes_per_second = 0;
  double bf16_flops_per_second = 0;
  double fp8_flops_per_second = 0;  // 0: the GPU has none
};

nlohmann::json RowOf(const Result& result, const ModelSpec& spec, const LayerWeights& layer, const Ceilings& ceilings) {
  const StreamCounters& run = result.report.counters;
  const Operations operations = OperationsOf(spec, layer, result.tokens);
  const auto layers = static_cast<double>(spec.num_layers);
  const double copies = static_cast<double>(run.streamed_bytes) / ceilings.copy_bytes_per_second;
  const auto ceiling = [&](double product_rate) {
    return std::max(
        copies, layers * (operations.products / product_rate + operations.attention / ceilings.bf16_flops_per_second));
  };
  nlohmann::json row{{"tokens", result.tokens},
                     {"seconds", run.wall_seconds},
                     {"streamed_bytes", run.streamed_bytes},
                     {"copy_ceiling_seconds", copies},
                     {"load_stream_bytes_per_second", static_cast<double>(run.streamed_bytes) / run.load_seconds},
                     {"compute_seconds", run.compute_seconds},
                     {"stall_seconds", run.stall_seconds},
                     {"ring_slots", run.ring_slots},
                     {"bf16_ceiling_ratio", run.wall_seconds / ceiling(ceilings.bf16_flops_per_second)}};
  if (ceilings.fp8_flops_per_second > 0) {
    row["fp8_ceiling_ratio"] = run.wall_seconds / ceiling(ceilings.fp8_flops_per_second);
  }
  return row;
}

void WriteMarkdown(const nlohmann::json& report, const std::string& path) {
  std::ofstream file(path);
  const auto number = [](const nlohmann::json& value, double scale, const char* format) {
    char text[32];
    std::snprintf(text, sizeof text, format, value.get<double>() * scale);
    return std::string(text);
  };
  file << "\n## Streamed prefill, " << report["layers"] << " layers of DeepSeek-V3's geometry\n\nPinned copies "
       << number(report["copy_bytes_per_second"], 1e-9, "%.1f") << " GB/s, mma BF16 "
       << number(report["bf16_flops_per_second"], 1e-12, "%.1f") << " TFLOP/s, mma FP8 "
       << number(report["fp8_flops_per_second"], 1e-12, "%.1f")
       << " TFLOP/s.\n\n| tokens | time | copies alone | load stream | computing | stalls | ring | of BF16 ceiling | "
          "of FP8 "
          "ceiling |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const nlohmann::json& row : report["runs"]) {
    file << "| " << row["tokens"] << " | " << number(row["seconds"], 1, "%.3f s") << " | "
         << number(row["copy_ceiling_seconds"], 1, "%.3f s") << " | "
         << number(row["load_stream_bytes_per_second"], 1e-9, "%.1f GB/s") << " | "
         << number(row["compute_seconds"], 1, "%.3f s") << " | " << number(row["stall_seconds"], 1, "%.3f s") << " | "
         << row["ring_slots"] << " | " << number(row["bf16_ceiling_ratio"], 1, "%.2f") << " | "
         << (row.contains("fp8_ceiling_ratio") ? number(row["fp8_ceiling_ratio"], 1, "%.2f") : "-") << " |\n";
  }
}

absl::Status Main(const std::string& out) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::OpenCudaDevice({}));
  const Ceilings ceilings{cuda::PinnedBandwidth(), cuda::MmaRate(), cuda::HasFp8Mma() ? cuda::MmaRate(true) : 0};
  const ModelSpec spec = DeepSeekV3Layers(kLayers);
  const HostWeights host(spec);
  std::atomic<bool> pinned = false;
  absl::Status pinning_status;
  const device::Pinning pinning(*device, host.data(), host.bytes(), {}, [&](int64_t, const absl::Status& status) {
    pinning_status = status;
    pinned = true;
    pinned.notify_all();
  });
  pinned.wait(false);
  MOE_RETURN_IF_ERROR(pinning_status);
  nlohmann::json report{{"gpu", std::string(device->name())},
                        {"layers", spec.num_layers},
                        {"copy_bytes_per_second", ceilings.copy_bytes_per_second},
                        {"bf16_flops_per_second", ceilings.bf16_flops_per_second},
                        {"fp8_flops_per_second", ceilings.fp8_flops_per_second},
                        {"runs", nlohmann::json::array()}};
  for (const int64_t tokens : {4096, 16384, 32768}) {
    MOE_ASSIGN_OR_RETURN(const Result result, Time(*device, spec, host.weights, tokens));
    report["runs"].push_back(RowOf(result, spec, host.weights.layers[0], ceilings));
  }
  std::ofstream(out + "/stream.json") << report.dump(2) << "\n";
  WriteMarkdown(report, out + "/stream.md");
  return absl::OkStatus();
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--out") {
    std::fprintf(stderr, "usage: cuda_stream_bench --out DIR\n");
    return 2;
  }
  const absl::Status status = moestro::Main(argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
