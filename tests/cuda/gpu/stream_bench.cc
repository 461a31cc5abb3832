// Times streamed prefill of mixture-of-experts layers of DeepSeek-V3's geometry, weights in pinned host memory, against
// what the machine allows: the weights' bytes at the bandwidth of pinned copies, the operations at the rate of mma,
// both measured in the same run. Writes DIR/stream.json and DIR/stream.md.
//   cuda_stream_bench --out DIR
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"
#include "services/prefill/stream/cuda/cuda_compute.h"
#include "services/prefill/stream/stream_prefill.h"
#include "services/prefill/stream/weight_pinning.h"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"
#include "tests/support/aligned_memory.h"

namespace moestro {
namespace {

constexpr int64_t kLayers = 3;  // the first one's weights arrive before anything is computed
// Experts of a layer that have memory of their own, 2.8 GB: far more than caches hold. The others share it.
constexpr int64_t kDistinctExperts = 64;
constexpr int64_t kHostBytes = int64_t{7} << 29;  // 3.5 GiB: these experts and a layer's other weights

ModelSpec Geometry() {
  ModelSpec spec;
  spec.hidden_size = 7168;
  spec.num_layers = kLayers;
  spec.num_heads = 128;
  spec.q_lora_rank = 1536;
  spec.kv_lora_rank = 512;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.v_head_dim = 128;
  spec.moe_intermediate_size = 2048;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  spec.num_shared_experts = 1;
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 4;
  spec.vocab_size = spec.token_count = 1024;  // the head is not what is measured
  spec.max_position_embeddings = 163840;
  spec.routed_scaling_factor = 2.5;
  return spec;
}

// Random weights laid out as in a segment; all layers are the same one.
class HostWeights {
 public:
  explicit HostWeights(const ModelSpec& spec) : memory_(kHostBytes) {
    std::mt19937 random(1);
    for (uint8_t& code : codes_) code = static_cast<uint8_t>(random() % 0x7f | (random() & 0x80));  // no NaN
    std::normal_distribution<float> normal(0, 0.02f);
    for (float& number : floats_) number = normal(random);

    const int64_t hidden = spec.hidden_size, heads = spec.num_heads;
    LayerWeights layer;
    AttentionWeights& a = layer.attention;
    a.input_norm = Floats(hidden);
    a.q_a = Linear(spec.q_lora_rank, hidden);
    a.q_a_norm = Floats(spec.q_lora_rank);
    a.q_b = Linear(heads * spec.qk_head_dim(), spec.q_lora_rank);
    a.kv_a = Linear(spec.kv_dim(), hidden);
    a.kv_a_norm = Floats(spec.kv_lora_rank);
    a.kv_b = Linear(heads * (spec.qk_nope_head_dim + spec.v_head_dim), spec.kv_lora_rank);
    a.o = Linear(hidden, heads * spec.v_head_dim);
    FeedForwardWeights& f = layer.feed_forward;
    f.norm = Floats(hidden);
    f.router = Floats(spec.num_experts * hidden);
    f.bias = Floats(spec.num_experts);
    f.always = Mlp(hidden, spec.shared_intermediate_size());
    for (int64_t e = 0; e < kDistinctExperts; ++e) f.experts.push_back(Mlp(hidden, spec.moe_intermediate_size));
    for (int64_t e = kDistinctExperts; e < spec.num_experts; ++e) f.experts.push_back(f.experts[e % kDistinctExperts]);
    weights.layers.assign(static_cast<size_t>(spec.num_layers), layer);
    weights.final_norm = Floats(hidden);
    weights.head = Linear(spec.vocab_size, hidden);
    weights.embedding = reinterpret_cast<const uint16_t*>(Take(codes_, spec.vocab_size * hidden * 2));
  }

  const uint8_t* data() const { return memory_.data(); }
  int64_t bytes() const { return next_; }
  ModelWeights weights;

 private:
  // `bytes` of memory, filled with the pattern again and again.
  template <typename T>
  const uint8_t* Take(const std::vector<T>& pattern, int64_t bytes) {
    uint8_t* const data = memory_.data() + next_;
    const int64_t whole = std::ssize(pattern) * static_cast<int64_t>(sizeof(T));
    for (int64_t at = 0; at < bytes; at += whole) {
      std::memcpy(data + at, pattern.data(), static_cast<size_t>(std::min(whole, bytes - at)));
    }
    next_ = RoundUp(next_ + bytes, kTensorAlignment);
    return data;
  }
  const float* Floats(int64_t count) { return reinterpret_cast<const float*>(Take(floats_, count * 4)); }
  PackedMatrix Linear(int64_t rows, int64_t cols) {
    PackedMatrix matrix{.dtype = DType::kF8E4M3, .rows = rows, .cols = cols};
    matrix.data = Take(codes_, PackedBytes(matrix.dtype, rows, cols));
    matrix.scales = reinterpret_cast<const float*>(Take(floats_, TensorScaleBytes(rows, cols)));
    return matrix;
  }
  MlpWeights Mlp(int64_t hidden, int64_t width) {
    return {Linear(width, hidden), Linear(width, hidden), Linear(hidden, width)};
  }

  AlignedMemory memory_;
  int64_t next_ = 0;
  std::vector<uint8_t> codes_ = std::vector<uint8_t>((1 << 20) + 64);
  std::vector<float> floats_ = std::vector<float>((1 << 18) + 16);
};

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
  for (int run = 0; run < 2; ++run) {  // the first one loads kernels
    MOE_RETURN_IF_ERROR(prefill.Run(
        rows, pages, MlaForm::kUnabsorbed, [] { return absl::OkStatus(); }, {},
        [](int64_t, std::span<const float>) {}));
  }
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
  const ModelSpec spec = Geometry();
  const HostWeights host(spec);
  std::atomic<bool> pinned = false;
  absl::Status pinning_status;
  const WeightPinning pinning(*device, host.data(), host.bytes(), 0, [&](int64_t, const absl::Status& status) {
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
