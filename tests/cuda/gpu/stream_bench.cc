// Times streamed prefill of MoE layers of DeepSeek-V3's geometry, with weights in pinned shared memory (staged if
// pinning is refused). Compares it with the machine's limits, both measured on it: the weights' bytes at the bandwidth
// of pinned copies, the operations at the rate of mma: of FP8 values with inputs in FP8, where prefill takes these
// by default, and of BF16 values. Writes DIR/stream.json and DIR/stream.md, complete after each run.
//   cuda_stream_bench --out DIR
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/pinning.h"
#include "common/engine/cuda/backend.h"
#include "common/engine/cuda/cuda_prefill.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"
#include "tests/cuda/gpu/host_weights.h"
#include "tests/support/aligned_memory.h"

namespace moestro {
namespace {

constexpr int64_t kLayers = 8;  // the first layer's weights arrive before any computation: an eighth

// Multiplications and additions of a layer's products and attention.
struct Operations {
  double products = 0;
  double attention = 0;
};
Operations OperationsOf(const weights::ModelSpec& spec, const model::LayerWeights& layer, int64_t tokens) {
  const model::AttentionWeights& a = layer.attention;
  const model::MlpWeights& expert = layer.feed_forward.experts[0];
  double weights = 0;  // weights that multiply a token
  for (const PackedMatrix* m : {&a.q_a, &a.q_b, &a.kv_a, &a.kv_b, &a.o})
    weights += static_cast<double>(m->rows * m->cols);
  weights +=
      static_cast<double>(3 * expert.gate.rows * expert.gate.cols * (spec.experts_per_token + spec.num_shared_experts));
  const auto n = static_cast<double>(tokens);
  const auto per_pair = static_cast<double>(spec.num_heads * (spec.qk_head_dim() + spec.v_head_dim));
  return {2 * n * weights, 2 * per_pair * n * (n + 1) / 2};
}

struct StreamResult {
  int64_t tokens = 0;
  bool fp8_inputs = false;
  prefill::PipelineReport report;
};

absl::StatusOr<StreamResult> Time(device::Device& device, const weights::ModelSpec& spec,
                                  const model::ModelWeights& weights, int64_t tokens, bool fp8_inputs) {
  engine::CudaPrefill compute(device, spec, weights, Int8Activations::kPublished, fp8_inputs);
  prefill::StreamPrefill prefill(device, spec, weights, compute, {});
  std::vector<model::EngineRow> rows;
  for (int64_t i = 0; i < tokens; ++i) {
    rows.push_back({static_cast<int32_t>(i * 7 % spec.token_count), static_cast<int32_t>(i), 0, i + 1 == tokens});
  }
  const kv::KvGeometry geometry{.num_layers = spec.num_layers,
                                .kv_dim = spec.kv_dim(),
                                .kv_heads = spec.num_kv_heads,
                                .page_count = CeilDiv(tokens, kv::kPageTokens)};
  const AlignedMemory kv(geometry.page_bytes() * geometry.page_count);
  const absl::StatusOr<device::Registration> pinned_kv =
      device.Register(kv.data(), kv.size(), device::HostAccess::kReadsAndWrites);
  std::vector<uint32_t> list(static_cast<size_t>(geometry.page_count));
  std::iota(list.begin(), list.end(), 0u);
  const kv::KvPages pages[] = {kv::KvPages(geometry, kv.data(), list)};
  bool all_equal = false;
  for (int run = 0; run < 2; ++run) {  // the first run loads kernels
    MOE_RETURN_IF_ERROR(prefill.Run(
        rows, pages, model::MlaForm::kUnabsorbed, [] { return absl::OkStatus(); }, {},
        [&](int64_t, std::span<const float> logits) {
          all_equal = std::ranges::count(logits, logits[0]) == std::ssize(logits);
        }));
  }
  // With such weights, all tokens choose the same experts.
  if (all_equal) return absl::InternalError("all logits are equal: the weights make no sense");
  return StreamResult{tokens, fp8_inputs, prefill.report()};
}

struct GpuCeilings {
  double copy_bytes_per_second = 0;
  double bf16_flops_per_second = 0;
  double fp8_flops_per_second = 0;  // 0: not known
};

nlohmann::json RowOf(const StreamResult& result, const weights::ModelSpec& spec, const model::LayerWeights& layer,
                     const GpuCeilings& ceilings) {
  const prefill::StreamCounters& run = result.report.counters;
  const Operations operations = OperationsOf(spec, layer, result.tokens);
  const auto layers = static_cast<double>(spec.num_layers);
  const double copies = static_cast<double>(run.streamed_bytes) / ceilings.copy_bytes_per_second;
  const auto ceiling = [&](double product_rate) {
    return std::max(
        copies, layers * (operations.products / product_rate + operations.attention / ceilings.bf16_flops_per_second));
  };
  nlohmann::json row{{"tokens", result.tokens},
                     {"inputs", result.fp8_inputs ? "fp8" : "bf16"},
                     {"seconds", run.wall_seconds},
                     {"streamed_bytes", run.streamed_bytes},
                     {"staged_bytes", run.staged_bytes},
                     {"pageable_bytes", run.pageable_bytes},
                     {"copy_ceiling_seconds", copies},
                     {"product_flops", layers * operations.products},
                     {"attention_flops", layers * operations.attention},
                     {"load_stream_bytes_per_second", static_cast<double>(run.streamed_bytes) / run.load_seconds},
                     {"compute_seconds", run.compute_seconds},
                     {"stall_seconds", run.stall_seconds},
                     {"ring_slots", run.ring_slots}};
  // Of the rate of the products that it takes.
  const double rate = result.fp8_inputs ? ceilings.fp8_flops_per_second : ceilings.bf16_flops_per_second;
  if (rate > 0) row["ceiling_ratio"] = run.wall_seconds / ceiling(rate);
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
       << number(report["bf16_flops_per_second"], 1e-12, "%.1f") << " TFLOP/s, FP8 "
       << (report["fp8_flops_per_second"].get<double>() > 0
               ? number(report["fp8_flops_per_second"], 1e-12, "%.1f TFLOP/s")
               : "not known")
       << ". Registered " << report["registered_of_bytes"][0] << " of " << report["registered_of_bytes"][1]
       << " bytes of weights. " << report["refused"].get<std::string>()
       << "\n\n| tokens | inputs | time | copies alone | load stream | computing | stalls | ring | of ceiling |\n"
          "|---|---|---|---|---|---|---|---|---|\n";
  for (const nlohmann::json& row : report["runs"]) {
    file << "| " << row["tokens"] << " | " << row["inputs"].get<std::string>() << " | "
         << number(row["seconds"], 1, "%.3f s") << " | " << number(row["copy_ceiling_seconds"], 1, "%.3f s") << " | "
         << number(row["load_stream_bytes_per_second"], 1e-9, "%.1f GB/s") << " | "
         << number(row["compute_seconds"], 1, "%.3f s") << " | " << number(row["stall_seconds"], 1, "%.3f s") << " | "
         << row["ring_slots"] << " | "
         << (row.contains("ceiling_ratio") ? number(row["ceiling_ratio"], 1, "%.2f") : "-") << " |\n";
  }
}

absl::Status Main(const std::string& out) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::OpenCudaDevice({}));
  cuda::WarmUp();
  const GpuCeilings ceilings{cuda::PinnedBandwidth(), cuda::MmaRate(),
                             cuda::HasNativeFp8Mma() ? cuda::MmaRate(true) : 0};
  const weights::ModelSpec spec = DeepSeekV3Layers(kLayers);
  const HostWeights host(spec);
  std::promise<std::pair<int64_t, absl::Status>> told;
  const device::Pinning pinning(*device, host.data(), host.bytes(), {}, [&](int64_t bytes, const absl::Status& status) {
    told.set_value({bytes, status});
  });
  const auto [registered, refused] = told.get_future().get();
  nlohmann::json report{{"gpu", std::string(device->name())},
                        {"layers", spec.num_layers},
                        {"registered_of_bytes", {registered, host.bytes()}},
                        {"refused", std::string(refused.message())},
                        {"copy_bytes_per_second", ceilings.copy_bytes_per_second},
                        {"bf16_flops_per_second", ceilings.bf16_flops_per_second},
                        {"fp8_flops_per_second", ceilings.fp8_flops_per_second},
                        {"runs", nlohmann::json::array()}};
  // The default first, which is FP8 where the GPU has it.
  MOE_ASSIGN_OR_RETURN(const bool takes_fp8, engine::CudaTakesFp8Inputs(0));
  for (const int64_t tokens : {4096, 16384, 32768}) {
    for (const bool fp8_inputs : {true, false}) {
      if (fp8_inputs && !takes_fp8) continue;
      MOE_ASSIGN_OR_RETURN(const StreamResult result, Time(*device, spec, host.weights, tokens, fp8_inputs));
      report["runs"].push_back(RowOf(result, spec, host.weights.layers[0], ceilings));
      std::ofstream(out + "/stream.json") << report.dump(2) << "\n";
      WriteMarkdown(report, out + "/stream.md");
    }
  }
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
