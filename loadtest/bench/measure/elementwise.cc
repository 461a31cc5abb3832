// The kernels other than the linear layers, with inputs from DRAM.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/buffer.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr int64_t kHidden = 7168;
constexpr int64_t kRouterExperts = 4;  // of one task, as in the engine
constexpr int64_t kKvElements = 576;   // elements of a token in the KV cache of MLA

// Outputs of one worker.
struct ElementwiseScratch {
  ElementwiseScratch()
      : floats(kHidden), ones(kHidden), bf16(kHidden), packed(PackedBytes(DType::kBF16, kKvElements, kAttentionBlock)) {
    std::fill_n(ones.get(), kHidden, 1.0f);
  }
  model::Buffer<float> floats;
  model::Buffer<float> ones;
  model::Buffer<uint16_t> bf16;
  model::Buffer<uint8_t> packed;
};

struct ElementwiseKernel {
  std::string name;
  int64_t bytes = 0;  // read from `data` by one call
  // data: BF16 values of deviation 1. Two of them form an F32 value of the same size.
  std::function<void(const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& scratch)> call;
};

const float* Floats(const uint8_t* data) { return reinterpret_cast<const float*>(data); }
const uint16_t* Narrow(const uint8_t* data) { return reinterpret_cast<const uint16_t*>(data); }

std::vector<ElementwiseKernel> Kernels() {
  return {
      {"router-logits", kRouterExperts * kHidden * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.router_logits(Floats(data), kRouterExperts, kHidden, s.ones.get(), s.floats.get());
       }},
      {"rms-norm", kHidden * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.rms_norm(Floats(data), s.ones.get(), kHidden, 1e-6f, s.floats.get(), s.bf16.get());
       }},
      {"silu-mul", kHidden * 8,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.silu_mul(Floats(data), Floats(data) + kHidden, kHidden, s.bf16.get());
       }},
      {"to-bf16", kHidden * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.to_bf16(Floats(data), kHidden, s.bf16.get());
       }},
      {"axpy", kHidden * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.axpy(0.25f, Floats(data), kHidden, s.floats.get());
       }},
      {"axpby", kHidden * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.axpby(0.25f, Floats(data), 0.5f, kHidden, s.floats.get());
       }},
      {"softmax-step", kAttentionBlock * 4,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         SoftmaxState state{-std::numeric_limits<float>::infinity(), 0};
         kernels.softmax_step(Floats(data), kAttentionBlock, kAttentionBlock, 1.0f, &state, s.bf16.get());
       }},
      {"pack-keys", kAttentionBlock * kKvElements * 2,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.pack_keys(Narrow(data), kKvElements, kAttentionBlock, kKvElements, s.packed.get());
       }},
      {"pack-values", kAttentionBlock * kKvElements * 2,
       [](const CpuKernels& kernels, const uint8_t* data, ElementwiseScratch& s) {
         kernels.pack_values(Narrow(data), kKvElements, kAttentionBlock, kKvElements, 0, kAttentionBlock,
                             s.packed.get());
       }},
  };
}

// Approximate bytes that one task of the worker pool reads.
constexpr int64_t kTaskBytes = int64_t{256} << 10;

absl::StatusOr<Findings> Measure(BenchContext& context, const ElementwiseKernel& kernel) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  std::vector<ElementwiseScratch> scratch(context.pool.threads());
  const int64_t calls = std::max<int64_t>(1, kTaskBytes / kernel.bytes);
  const int64_t tasks = context.weights.size() / (calls * kernel.bytes);
  const int64_t bytes = tasks * calls * kernel.bytes;
  const Work works[] = {context.ceilings.Read(context.weights.data(), bytes / 256 * 256), {.run = [&] {
                          context.pool.Run(tasks, [&](int64_t task, int worker) {
                            const uint8_t* data = context.weights.data() + task * calls * kernel.bytes;
                            for (int64_t call = 0; call < calls; ++call) {
                              kernel.call(context.kernels, data + call * kernel.bytes, scratch[worker]);
                            }
                          });
                          return static_cast<double>(bytes);
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(kernel.name, context.pool.threads(), "GB/s", series[1], "bytes of the input that comes from DRAM");
  CompareRates(series[1], kReadBandwidth, series[0], std::nullopt, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddElementwiseBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  for (const ElementwiseKernel& kernel : Kernels()) {
    benchmarks.push_back(
        {"elementwise", kernel.name, [kernel](BenchContext& context) { return Measure(context, kernel); }});
  }
}

}  // namespace moestro::bench
