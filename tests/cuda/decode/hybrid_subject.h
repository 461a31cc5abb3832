// Hybrid decode with the CUDA kernels, beside the engine on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_decode.h"
#include "common/kernels/dispatch.h"
#include "common/model/binding.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/aligned_memory.h"

namespace moestro::decode {

// Sequences in the pages of one pool, out of order. Filled with NaN.
class TestPool {
 public:
  // Each sequence has room for `tokens` tokens.
  TestPool(const weights::ModelSpec& spec, int64_t sequences, int64_t tokens);

  kv::KvPages pages(int64_t sequence, uint64_t lease = 0) const {
    return {geometry_, memory_.data(), lists_[static_cast<size_t>(sequence)], lease};
  }
  int64_t page_count() const { return geometry_.page_count; }
  // The cached elements of the rows, layer by layer.
  static std::vector<uint16_t> Contents(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages);
  // Overwrites them with NaN.
  static void Forget(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages);

 private:
  kv::KvGeometry geometry_;
  AlignedMemory memory_;
  std::vector<std::vector<uint32_t>> lists_;
};

// A model, the engine on the CPU, and hybrid steps.
class HybridSubject {
 public:
  // device: null: the first GPU. device_pages: as CudaDecodeOptions.
  HybridSubject(const weights::WeightSegment& segment, int64_t max_rows, int64_t kv_pages,
                device::Device* device = nullptr, int64_t device_pages = 0);

  const weights::ModelSpec& spec() const { return segment_.spec(); }
  const model::ModelWeights& weights() const { return weights_; }
  model::Engine& engine() { return *engine_; }
  device::Device& device() { return device_; }
  engine::CudaDecode& compute() { return *compute_; }
  CpuExperts& experts() { return experts_; }
  HybridForward& forward() { return *forward_; }

  // Logits of all rows that need them. The first `cut` runs are one micro-batch, the others the second.
  absl::Status Step(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, size_t cut,
                    model::Logits* logits);

 private:
  const weights::WeightSegment& segment_;
  const model::ModelWeights weights_;
  WorkerPool pool_{2};
  const std::unique_ptr<model::Engine> engine_;
  std::unique_ptr<device::Device> own_device_;
  device::Device& device_;
  const std::unique_ptr<engine::CudaDecode> compute_;
  CpuExperts experts_;
  size_t cut_ = 1;
  const std::unique_ptr<HybridForward> forward_;
};

}  // namespace moestro::decode
