// Times the kernels at DeepSeek-V3's shapes and writes DIR/bench.json and DIR/bench.md, complete after each row. Every
// figure is a ratio to a ceiling measured in the same run: copy bandwidth for moved bytes, the rate of products. A
// kernel's own ceiling is the slower of the two.
//   cuda_bench --out DIR
//   cuda_bench --once       launches each kernel once and times nothing: for profilers
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/math.h"
#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/head_linear.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/routing.h"
#include "common/tensor/packed_matrix.h"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"

namespace moestro::cuda {
namespace {

constexpr int64_t kHidden = 7168, kExpertWidth = 2048, kChosen = 8, kExperts = 256;

struct KernelRow {
  std::string kernel, shape;
  double seconds = 0;
  double bytes = 0;  // minimum bytes to move
  double flops = 0;
  bool fp8 = false;  // its products are those of FP8 values
};

void Check(LaunchResult result) {
  if (result.ok()) return;
  std::fprintf(stderr, "launch: error %d\n", result.error);
  std::exit(1);
}

// Buffer contents affect power, and so clocks: random numbers, no NaN.
template <typename T>
std::unique_ptr<DeviceArray<T>> Random(int64_t n, T (*make)(uint32_t)) {
  constexpr int64_t kPattern = 1 << 20;
  std::mt19937 random(1);
  std::vector<T> pattern(static_cast<size_t>(std::min(n, kPattern)));
  for (T& value : pattern) value = make(static_cast<uint32_t>(random()));
  auto array = std::make_unique<DeviceArray<T>>(n);
  CopyToDevice(array->get(), pattern.data(), std::ssize(pattern) * static_cast<int64_t>(sizeof(T)));
  for (int64_t at = kPattern; at < n; at += kPattern) {
    const auto bytes = static_cast<size_t>(std::min(kPattern, n - at)) * sizeof(T);
    Check({static_cast<int>(
        cudaMemcpyAsync(array->get() + at, array->get(), bytes, cudaMemcpyDeviceToDevice, DeviceStream()))});
  }
  return array;
}
uint8_t RandomCode(uint32_t bits) { return static_cast<uint8_t>(bits % 0x7f | (bits >> 8 & 0x80)); }
uint16_t RandomBf16(uint32_t bits) { return ToBf16(static_cast<float>(bits % 2001) / 1000 - 1); }
float RandomFloat(uint32_t bits) { return static_cast<float>(bits % 2001) / 1000 - 1; }

// Of what calls read in turn, so that none finds it in a cache: as many as no cache holds.
int64_t CopiesOf(int64_t bytes) { return (int64_t{1} << 29) / bytes + 1; }

class Weights {
 public:
  Weights(DType dtype, int64_t rows, int64_t cols, int64_t copies)
      : bytes_(PackedBytes(dtype, rows, cols)),
        scale_count_(RoundUp((rows + 127) / 128 * ((cols + 127) / 128), 64)),
        copies_(copies),
        data_(Random<uint8_t>(copies * bytes_, dtype == DType::kF8E4M3 ? RandomCode : [](uint32_t bits) {
          return static_cast<uint8_t>(bits & 0x3f);  // small BF16 values, no NaN
        })),
        scales_(Random<float>(copies * scale_count_, RandomFloat)) {}
  // For one call after the other.
  static Weights InTurn(DType dtype, int64_t rows, int64_t cols) {
    return Weights(dtype, rows, cols, CopiesOf(PackedBytes(dtype, rows, cols)));
  }
  MatrixPointers Next() {
    const int64_t copy = calls_++ % copies_;
    return {data_->get() + copy * bytes_, scales_->get() + copy * scale_count_};
  }

 private:
  int64_t bytes_, scale_count_, copies_, calls_ = 0;
  std::unique_ptr<DeviceArray<uint8_t>> data_;
  std::unique_ptr<DeviceArray<float>> scales_;
};

std::string Shape(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// Rows of a step of one, two or six sequences, and of chunks of prompts.
constexpr int64_t kStepRows[] = {1, 2, 6};
constexpr int64_t kChunkRows[] = {128, 512, 1024, 4096};

// The rows in FP8 codes.
std::unique_ptr<DeviceArray<uint8_t>> Encode(const DeviceArray<uint16_t>& x, int64_t rows, int64_t cols) {
  auto codes = std::make_unique<DeviceArray<uint8_t>>(rows * Fp8RowBytes(cols));
  Check(LaunchEncodeFp8({.x = x.get(), .x_stride = cols, .rows = rows, .cols = cols, .out = codes->get()},
                        DeviceStream()));
  return codes;
}

void TimeLinear(const char* name, DType dtype, int64_t rows, int64_t cols, int64_t tokens,
                std::vector<KernelRow>& table, bool coded = false) {
  Weights weights = Weights::InTurn(dtype, rows, cols);
  const auto x = Random<uint16_t>(tokens * cols, RandomBf16);
  const auto codes = coded ? Encode(*x, tokens, cols) : nullptr;
  const DeviceArray<float> y(tokens * rows);
  LinearShape shape{
      .dtype = dtype, .rows = rows, .cols = cols, .x = x->get(), .x_stride = cols, .y = y.get(), .y_stride = rows};
  if (coded) shape.codes = codes->get();
  const double seconds = SecondsOf([&] { return LaunchLinear(shape, weights.Next(), tokens, DeviceStream()); });
  table.push_back({std::string(name) + " " + DTypeName(dtype) + (coded ? ", inputs in FP8" : ""),
                   Shape({rows, cols, tokens}), seconds,
                   static_cast<double>(PackedBytes(dtype, rows, cols) + tokens * (2 * cols + 4 * rows)),
                   2.0 * static_cast<double>(rows * cols) * static_cast<double>(tokens), coded});
}

void TimeGateUp(int64_t tokens, std::vector<KernelRow>& table) {
  Weights gate = Weights::InTurn(DType::kF8E4M3, kExpertWidth, kHidden);
  Weights up = Weights::InTurn(DType::kF8E4M3, kExpertWidth, kHidden);
  const auto x = Random<uint16_t>(tokens * kHidden, RandomBf16);
  const DeviceArray<uint16_t> y(tokens * kExpertWidth);
  const LinearShape shape{.dtype = DType::kF8E4M3,
                          .rows = kExpertWidth,
                          .cols = kHidden,
                          .x = x->get(),
                          .x_stride = kHidden,
                          .y = y.get(),
                          .y_stride = kExpertWidth};
  const double seconds = SecondsOf([&] { return LaunchGateUp(shape, gate.Next(), up.Next(), tokens, DeviceStream()); });
  table.push_back({"gate and up F8_E4M3", Shape({2 * kExpertWidth, kHidden, tokens}), seconds,
                   static_cast<double>(2 * kExpertWidth * kHidden + tokens * 2 * (kHidden + kExpertWidth)),
                   2.0 * 2 * kExpertWidth * kHidden * static_cast<double>(tokens)});
}

// As many experts as one launch takes, each with its average number of rows for a prompt of `tokens`: gate and up with
// SiLU, as in prefill.
void TimeExperts(int64_t tokens, std::vector<KernelRow>& table, bool coded = false) {
  constexpr int64_t kTogether = kMaxMatrices;
  const int64_t per_expert = tokens * kChosen / kExperts, routed = per_expert * kTogether;
  std::vector<std::unique_ptr<Weights>> weights;
  MatrixList gate, up;
  std::vector<int32_t> ids;
  for (int64_t e = 0; e < kTogether; ++e) {
    for (MatrixList* list : {&gate, &up}) {
      weights.push_back(std::make_unique<Weights>(DType::kF8E4M3, kExpertWidth, kHidden, 1));
      list->of[e] = weights.back()->Next();
    }
  }
  // Every row of `routed` chose one of them.
  for (int64_t i = 0; i < routed; ++i) ids.push_back(static_cast<int32_t>(i % kTogether));
  const auto x = Random<uint16_t>(routed * kHidden, RandomBf16);
  const auto codes = coded ? Encode(*x, routed, kHidden) : nullptr;
  const DeviceArray<uint16_t> y(routed * kExpertWidth);
  const DeviceArray<int32_t> device_ids(ids), begin(kTogether + 1), row_of(routed), routed_of(routed),
      small_begin(kTogether + 1), large_begin(kTogether + 1);
  const DeviceArray<TokenTile> small(MaxSmallTiles(routed, kTogether)), large(MaxLargeTiles(routed, kTogether));
  const RoutingPlan plan{begin.get(), row_of.get(),      routed_of.get(),  small.get(),
                         large.get(), small_begin.get(), large_begin.get()};
  Check(LaunchPlanExperts(device_ids.get(), 1, routed, 1, kTogether, plan, DeviceStream()));
  LinearShape shape{.dtype = DType::kF8E4M3,
                    .rows = kExpertWidth,
                    .cols = kHidden,
                    .x = x->get(),
                    .x_stride = kHidden,
                    .y = y.get(),
                    .y_stride = kExpertWidth};
  if (coded) shape.codes = codes->get();
  const auto run = [&](bool is_small) {
    const int32_t* first = is_small ? plan.small_begin : plan.large_begin;
    return LaunchGroupedGateUp(
        shape,
        {.matrices = gate,
         .row_of = plan.row_of,
         .tiles = is_small ? plan.small : plan.large,
         .first_tile = first,
         .end_tile = first + kTogether,
         .max_tiles = is_small ? MaxSmallTiles(routed, kTogether) : MaxLargeTiles(routed, kTogether),
         .tile_tokens = is_small ? kSmallTile : kLargeTile},
        up, DeviceStream());
  };
  const double seconds = SecondsOf([&] {
    const LaunchResult result = run(false);
    return result.ok() ? run(true) : result;
  });
  table.push_back(
      {"grouped gate and up F8_E4M3, " + std::to_string(kTogether) + " experts" + (coded ? ", inputs in FP8" : ""),
       Shape({2 * kExpertWidth, kHidden, per_expert}), seconds,
       static_cast<double>(kTogether * 2 * kExpertWidth * kHidden + routed * 2 * (kHidden + kExpertWidth)),
       2.0 * 2 * kExpertWidth * kHidden * static_cast<double>(routed), coded});
}

void TimeAttention(int64_t heads, int64_t rows, std::vector<KernelRow>& table) {
  constexpr int64_t kHead = 256, kKv = 576;
  const auto expanded = Random<uint16_t>(rows * heads * kHead, RandomBf16);
  const auto rope = Random<uint16_t>(rows * kKv, RandomBf16);
  const auto queries = Random<uint16_t>(rows * heads * 192, RandomBf16);
  const DeviceArray<uint16_t> out(rows * heads * 128);
  const KvVectors keys{expanded->get(), nullptr, kKvBlock * heads * kHead, heads * kHead, kHead};
  KvVectors values = keys;
  values.data += 128;
  const PrefillAttentionArgs args{.heads = heads,
                                  .kv_heads = heads,
                                  .key_dim = 192,
                                  .value_dim = 128,
                                  .scale = 0.1352f,
                                  .keys = keys,
                                  .shared_keys = {rope->get() + 512, nullptr, kKvBlock * kKv, kKv, 0},
                                  .values = values,
                                  .position = 0,
                                  .rows = rows,
                                  .queries = queries->get(),
                                  .query_stride = heads * 192,
                                  .out = out.get(),
                                  .out_stride = heads * 128};
  const double seconds = SecondsOf([&] { return LaunchPrefillAttention(args, DeviceStream()); });
  table.push_back(
      {"attention, un-absorbed MLA", Shape({heads, rows}), seconds,
       static_cast<double>(rows * heads * 2 * (192 + 128 + kHead)),
       2.0 * 320 * static_cast<double>(heads) * static_cast<double>(rows) * static_cast<double>(rows + 1) / 2});
}

struct DecodeShape {
  const char* name;
  int64_t heads;
  int64_t kv_heads;  // 0: MLA
  int64_t latent;
  int64_t key_dim;
  int64_t kv_dim;
};
constexpr DecodeShape kDeepSeekV3Decode{"decode attention, absorbed MLA", 128, 0, 512, 576, 576};
constexpr DecodeShape kQwen3Decode{"decode attention, grouped queries", 64, 4, 128, 128, 1024};

// Rows of sequences of `tokens` tokens. Every call reads different pages.
void TimeDecodeAttention(const DecodeShape& shape, int64_t rows, int64_t tokens, std::vector<KernelRow>& table) {
  constexpr int64_t kPage = 64;
  const int64_t heads = shape.heads, kv = shape.kv_dim, latent = shape.latent, key = shape.key_dim;
  const int64_t sequence_pages = tokens / kPage, call_pages = rows * sequence_pages;
  const int64_t calls = CopiesOf(call_pages * kPage * kv * 2);
  const auto cache = Random<uint16_t>(calls * call_pages * kPage * kv, RandomBf16);
  const auto queries = Random<uint16_t>(rows * heads * key, RandomBf16);
  std::vector<uint32_t> list(static_cast<size_t>(calls * call_pages));
  std::iota(list.begin(), list.end(), 0u);
  std::vector<int32_t> positions(static_cast<size_t>(rows), static_cast<int32_t>(tokens - 1)), first_page;
  for (int64_t row = 0; row < rows; ++row) first_page.push_back(static_cast<int32_t>(row * sequence_pages));
  const DeviceArray<uint32_t> device_list(list);
  const DeviceArray<int32_t> device_positions(positions), device_first(first_page);
  const DeviceArray<float> partial(rows * kMaxSplits * heads * latent), log_sum(rows * kMaxSplits * heads);
  const DeviceArray<uint16_t> out(rows * heads * latent);
  int64_t call = 0;
  const double seconds = SecondsOf([&] {
    return LaunchDecodeAttention(
        {.rows = rows,
         .heads = heads,
         .kv_heads = shape.kv_heads,
         .latent = latent,
         .scale = 0.1352f,
         .latent_queries = {queries->get(), heads * key, key},
         .rotated_queries = {queries->get() + (shape.kv_heads > 0 ? 0 : latent), heads * key, key},
         .pages = {.pages = reinterpret_cast<uint8_t*>(cache->get()),
                   .list = device_list.get() + call++ % calls * call_pages,
                   .page_bytes = kPage * kv * 2,
                   .kv_dim = kv},
         .positions = device_positions.get(),
         .first_page = device_first.get(),
         .partial = partial.get(),
         .log_sum = log_sum.get(),
         .out = out.get()},
        DeviceStream());
  });
  const auto pairs = static_cast<double>(rows * heads) * static_cast<double>(tokens);
  table.push_back({shape.name, Shape({heads, rows, tokens}), seconds, static_cast<double>(call_pages * kPage * kv * 2),
                   2.0 * static_cast<double>(key + latent) * pairs});
}

void TimeHeadLinear(int64_t head_rows, int64_t first_row, int64_t out_rows, int64_t cols, int64_t rows,
                    std::vector<KernelRow>& table) {
  constexpr int64_t kHeads = 128;
  Weights weights = Weights::InTurn(DType::kF8E4M3, kHeads * head_rows, cols);
  const auto x = Random<uint16_t>(rows * kHeads * cols, RandomBf16);
  const DeviceArray<uint16_t> y(rows * kHeads * out_rows);
  HeadLinearArgs args{.dtype = DType::kF8E4M3,
                      .matrix = {},
                      .heads = kHeads,
                      .head_rows = head_rows,
                      .first_row = first_row,
                      .out_rows = out_rows,
                      .cols = cols,
                      .x = x->get(),
                      .x_row_stride = kHeads * cols,
                      .x_head_stride = cols,
                      .y = y.get(),
                      .y_row_stride = kHeads * out_rows,
                      .y_head_stride = out_rows};
  table.push_back({"products of single heads F8_E4M3", Shape({kHeads, out_rows, cols, rows}), SecondsOf([&] {
                     args.matrix = weights.Next();
                     return LaunchHeadLinear(args, rows, DeviceStream());
                   }),
                   static_cast<double>(kHeads * (out_rows * cols + rows * 2 * (cols + out_rows))), 0});
}

void TimeElementwise(int64_t rows, std::vector<KernelRow>& table) {
  const auto x = Random<float>(rows * kHidden, RandomFloat), weight = Random<float>(kHidden, RandomFloat);
  const DeviceArray<uint16_t> bf16(rows * kHidden);
  const RmsNormArgs norm{.x = x->get(),
                         .x_stride = kHidden,
                         .weight = weight->get(),
                         .rows = rows,
                         .n = kHidden,
                         .eps = 1e-6f,
                         .out = nullptr,
                         .out_bf16 = bf16.get(),
                         .out_bf16_stride = kHidden};
  const auto cells = static_cast<double>(rows * kHidden);
  table.push_back({"rms_norm", Shape({rows, kHidden}), SecondsOf([&] { return LaunchRmsNorm(norm, DeviceStream()); }),
                   6 * cells, 0});
  const auto up = Random<float>(rows * kHidden, RandomFloat);
  table.push_back({"silu_mul", Shape({rows, kHidden}), SecondsOf([&] {
                     return LaunchSiluMul(x->get(), up->get(), rows, kHidden, kHidden, bf16.get(), kHidden,
                                          DeviceStream());
                   }),
                   10 * cells, 0});
}

void TimeRouting(int64_t rows, std::vector<KernelRow>& table) {
  const auto logits = Random<float>(rows * kExperts, RandomFloat), bias = Random<float>(kExperts, RandomFloat);
  const int64_t copies = CopiesOf(kExperts * kHidden * 4);
  const auto w = Random<float>(copies * kExperts * kHidden, RandomFloat);
  const auto x = Random<float>(rows * kHidden, RandomFloat);
  int64_t call = 0;
  const DeviceArray<float> out(rows * kExperts), weights(rows * kChosen), sums(rows * kHidden);
  const auto expert_out = Random<float>(rows * kChosen * kHidden, RandomFloat);
  const DeviceArray<int32_t> ids(rows * kChosen), has_nan(std::vector<int32_t>(1, 0)), begin(kExperts + 1),
      row_of(rows * kChosen), routed_of(rows * kChosen), small_begin(kExperts + 1), large_begin(kExperts + 1);
  const DeviceArray<TokenTile> small(MaxSmallTiles(rows * kChosen, kExperts)),
      large(MaxLargeTiles(rows * kChosen, kExperts));
  const auto n = static_cast<double>(rows);
  table.push_back({"router logits", Shape({rows, kExperts, kHidden}), SecondsOf([&] {
                     const float* const its_w = w->get() + call++ % copies * kExperts * kHidden;
                     return LaunchRouterLogits(its_w, kExperts, kHidden, x->get(), rows, out.get(), DeviceStream());
                   }),
                   4 * (n * kHidden + n * kExperts + double{kExperts} * kHidden), 0});
  const ChooseExpertsArgs choose{.logits = logits->get(),
                                 .bias = bias->get(),
                                 .rows = rows,
                                 .experts = kExperts,
                                 .chosen = kChosen,
                                 .groups = 8,
                                 .kept_groups = 4,
                                 .scale = 2.5f,
                                 .ids = ids.get(),
                                 .weights = weights.get(),
                                 .has_nan = has_nan.get()};
  table.push_back({"choose experts", Shape({rows, kExperts}),
                   SecondsOf([&] { return LaunchChooseExperts(choose, DeviceStream()); }),
                   4 * n * (kExperts + 2 * kChosen), 0});
  const RoutingPlan plan{begin.get(), row_of.get(),      routed_of.get(),  small.get(),
                         large.get(), small_begin.get(), large_begin.get()};
  table.push_back({"plan experts", Shape({rows, kChosen}), SecondsOf([&] {
                     return LaunchPlanExperts(ids.get(), 1, rows, kChosen, kExperts, plan, DeviceStream());
                   }),
                   3 * 4 * n * kChosen, 0});
  const CombineArgs combine{.expert_out = expert_out->get(),
                            .ids = ids.get(),
                            .weights = weights.get(),
                            .routed_of = routed_of.get(),
                            .first = 0,
                            .end = kExperts,
                            .rows = rows,
                            .chosen = kChosen,
                            .hidden = kHidden,
                            .sums = sums.get()};
  table.push_back({"combine", Shape({rows, kChosen, kHidden}),
                   SecondsOf([&] { return LaunchCombine(combine, DeviceStream()); }), 4 * n * kHidden * (kChosen + 1),
                   0});
}

// Operations over the rate of products, or bytes over copy bandwidth: no version runs in less.
double LeastSeconds(const KernelRow& row, double bandwidth, double product_rate) {
  return std::max(row.bytes / bandwidth, row.flops / product_rate);
}

// fp8_mma_rate: 0 if the GPU has no such instruction.
nlohmann::json Report(const std::vector<KernelRow>& table, double bandwidth, double mma_rate, double fp8_mma_rate) {
  cudaDeviceProp gpu;
  cudaGetDeviceProperties(&gpu, 0);
  nlohmann::json report{{"gpu", gpu.name},
                        {"compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor)},
                        {"multiprocessors", gpu.multiProcessorCount},
                        {"copy_bytes_per_second", bandwidth},
                        {"mma_bf16_flops_per_second", mma_rate},
                        {"mma_fp8_flops_per_second", fp8_mma_rate},
                        {"kernels", nlohmann::json::array()}};
  for (const KernelRow& row : table) {
    // Where the rate of FP8 is not known, the ratio is to BF16's, and may exceed 1.
    const double its_rate = row.fp8 && fp8_mma_rate > 0 ? fp8_mma_rate : mma_rate;
    report["kernels"].push_back({{"kernel", row.kernel},
                                 {"shape", row.shape},
                                 {"seconds", row.seconds},
                                 {"bytes", row.bytes},
                                 {"flops", row.flops},
                                 {"fp8", row.fp8},
                                 {"ratio_to_copy", row.bytes / row.seconds / bandwidth},
                                 {"ratio_to_mma", row.flops / row.seconds / mma_rate},
                                 {"of_ceiling", LeastSeconds(row, bandwidth, its_rate) / row.seconds}});
  }
  return report;
}

void WriteMarkdown(const nlohmann::json& report, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  const auto number = [](const nlohmann::json& value, double scale) { return value.get<double>() * scale; };
  std::fprintf(file, "\n## CUDA kernels on %s\n\n", report["gpu"].get<std::string>().c_str());
  std::fprintf(
      file,
      "Compute capability %s, %d multiprocessors. Copy within device memory %.0f GB/s, mma BF16 %.1f TFLOP/s, FP8 %.1f "
      "(0: it has none). Of ceiling: of the slower of copy bandwidth and mma of its kind.\n",
      report["compute_capability"].get<std::string>().c_str(), report["multiprocessors"].get<int>(),
      number(report["copy_bytes_per_second"], 1e-9), number(report["mma_bf16_flops_per_second"], 1e-12),
      number(report["mma_fp8_flops_per_second"], 1e-12));
  std::fprintf(
      file, "\n| kernel | shape | time | of copy bandwidth | of mma rate | of ceiling |\n|---|---|---|---|---|---|\n");
  for (const nlohmann::json& row : report["kernels"]) {
    std::fprintf(file, "| %s | %s | %.1f us | %.2f | %.2f | %.2f |\n", row["kernel"].get<std::string>().c_str(),
                 row["shape"].get<std::string>().c_str(), number(row["seconds"], 1e6), number(row["ratio_to_copy"], 1),
                 number(row["ratio_to_mma"], 1), number(row["of_ceiling"], 1));
  }
  std::fclose(file);
}

// Calls done() after each row: a fault ends the process. So kernels of few rows come first, and those that multiply by
// groups of warps last.
template <typename Done>
void TimeAll(std::vector<KernelRow>& table, const Done& done) {
  constexpr struct {
    const char* name;
    int64_t rows, cols;
  } kLinears[] = {{"kv_a", 576, kHidden},
                  {"q_a", 1536, kHidden},
                  {"q_b", 24576, 1536},
                  {"o", kHidden, 16384},
                  {"shared down", kHidden, kExpertWidth}};
  const auto time_products = [&](std::span<const int64_t> of_tokens) {
    for (const auto& linear : kLinears) {
      for (const int64_t tokens : of_tokens) {
        TimeLinear(linear.name, DType::kF8E4M3, linear.rows, linear.cols, tokens, table);
        done();
      }
    }
    for (const int64_t tokens : of_tokens) {
      TimeGateUp(tokens, table);
      done();
    }
  };
  time_products(kStepRows);
  for (const DecodeShape& shape : {kDeepSeekV3Decode, kQwen3Decode}) {
    for (const int64_t tokens : {1024, 4096, 32768}) {
      for (const int64_t rows : kStepRows) {
        TimeDecodeAttention(shape, rows, tokens, table);
        done();
      }
    }
  }
  for (const int64_t rows : kStepRows) {
    TimeHeadLinear(512, 0, 512, 128, rows, table);  // queries into the latent space
    done();
    TimeHeadLinear(256, 128, 128, 512, rows, table);  // latents into values
    done();
  }
  for (const int64_t rows : {1, 2, 6, 128, 512, 1024, 4096}) {
    TimeElementwise(rows, table);
    TimeRouting(rows, table);
    done();
  }
  for (const int64_t tokens : {1, 16, 1024}) {
    TimeLinear("linear", DType::kBF16, kExpertWidth, kHidden, tokens, table);
    done();
  }
  if (HasWgmma()) {  // the products of other GPUs: what is left where those of groups of warps are at fault
    SetWarpGroups(false);
    const auto by_warps = [&] {
      table.back().kernel += ", by warps";
      done();
    };
    for (const int64_t tokens : {128, 1024, 4096}) {
      TimeLinear("o", DType::kF8E4M3, kHidden, 16384, tokens, table);
      by_warps();
    }
    TimeExperts(4096, table);
    by_warps();
    for (const int64_t rows : {1024, 4096}) {
      TimeAttention(16, rows, table);
      by_warps();
    }
    ResetWarpGroups();
  }
  time_products(kChunkRows);
  for (const int64_t tokens : {512, 4096, 16384}) {
    TimeExperts(tokens, table);
    done();
  }
  for (const int64_t rows : {128, 1024, 4096, 16384}) {
    TimeAttention(16, rows, table);
    done();
  }
  if (HasNativeFp8Mma() || HasWgmma()) {
    for (const int64_t tokens : {128, 1024, 4096}) {
      TimeLinear("o", DType::kF8E4M3, kHidden, 16384, tokens, table, true);
      done();
    }
    for (const int64_t tokens : {512, 4096, 16384}) {
      TimeExperts(tokens, table, true);
      done();
    }
  }
}

void Main(const std::string& out) {
  WarmUp();
  const double bandwidth = CopyBandwidth(), mma_rate = MmaRate(), fp8_mma_rate = HasNativeFp8Mma() ? MmaRate(true) : 0;
  std::vector<KernelRow> table;
  TimeAll(table, [&] {
    const nlohmann::json report = Report(table, bandwidth, mma_rate, fp8_mma_rate);
    std::ofstream(out + "/bench.json") << report.dump(2) << "\n";
    WriteMarkdown(report, out + "/bench.md");
  });
}

void Once() {
  OnlyOnce();
  std::vector<KernelRow> table;
  TimeAll(table, [] {});
}

}  // namespace
}  // namespace moestro::cuda

int main(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  if (argc == 2 && flag == "--once") {
    moestro::cuda::Once();
  } else if (flag == "--out" && argc == 3) {
    moestro::cuda::Main(argv[2]);
  } else {
    std::fprintf(stderr, "usage: cuda_bench --out DIR | --once\n");
    return 2;
  }
  return 0;
}
