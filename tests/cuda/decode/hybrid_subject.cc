#include "tests/cuda/decode/hybrid_subject.h"

#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

constexpr int64_t kDeviceBytes = int64_t{1} << 30;

}  // namespace

TestPool::TestPool(const weights::ModelSpec& spec, int64_t sequences, int64_t tokens)
    : geometry_{.num_layers = spec.num_layers,
                .kv_dim = spec.kv_dim(),
                .kv_heads = spec.num_kv_heads,
                .page_count = sequences * CeilDiv(tokens, kv::kPageTokens)},
      memory_(geometry_.page_count * geometry_.page_bytes()),
      lists_(static_cast<size_t>(sequences)) {
  std::memset(memory_.data(), 0xff, static_cast<size_t>(geometry_.page_count * geometry_.page_bytes()));
  for (int64_t page = geometry_.page_count - 1; page >= 0; --page) {
    lists_[static_cast<size_t>(page % sequences)].push_back(static_cast<uint32_t>(page));
  }
}

std::vector<uint16_t> TestPool::Contents(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages) {
  std::vector<uint16_t> numbers;
  const kv::KvGeometry& geometry = pages[0].geometry();
  for (int64_t layer = 0; layer < geometry.num_layers; ++layer) {
    for (const model::EngineRow& row : rows) {
      std::vector<uint16_t> entry(static_cast<size_t>(geometry.kv_dim));
      pages[static_cast<size_t>(row.sequence)].Read(layer, row.position, entry.data());
      numbers.insert(numbers.end(), entry.begin(), entry.end());
    }
  }
  return numbers;
}

void TestPool::Forget(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages) {
  const kv::KvGeometry& geometry = pages[0].geometry();
  const std::vector<uint16_t> nan(static_cast<size_t>(geometry.kv_dim), 0xffff);
  for (int64_t layer = 0; layer < geometry.num_layers; ++layer) {
    for (const model::EngineRow& row : rows) {
      pages[static_cast<size_t>(row.sequence)].Store(layer, row.position, nan.data());
    }
  }
}

HybridSubject::HybridSubject(const weights::WeightSegment& segment, int64_t max_rows, int64_t kv_pages,
                             device::Device* device, int64_t device_pages)
    : segment_(segment),
      weights_(model::BindWeights(segment).value()),
      engine_(model::Engine::Create(segment, TestKernels(), pool_, {.max_rows = 128}).value()),
      own_device_(device == nullptr ? device::OpenCudaDevice({.memory_bytes = kDeviceBytes}).value() : nullptr),
      device_(device == nullptr ? *own_device_ : *device),
      compute_(engine::CudaDecode::Create(
                   device_, segment.spec(), weights_,
                   {.max_rows = max_rows, .max_sequences = 16, .kv_pages = kv_pages, .device_pages = device_pages})
                   .value()),
      experts_(segment.spec(), weights_, TestKernels(), pool_, max_rows),
      forward_(HybridForward::Create(
                   segment.spec(), device_, *compute_, experts_,
                   {.max_rows = max_rows,
                    .split = [this](const model::CheckedBatch& batch) { return std::min(cut_, batch.runs.size()); }})
                   .value()) {}

absl::Status HybridSubject::Step(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, size_t cut,
                                 model::Logits* logits) {
  cut_ = cut;
  logits->clear();
  return forward_->Forward({rows, pages}, model::NeverInterrupted,
                           [&](int64_t, std::span<const float> row) { logits->emplace_back(row.begin(), row.end()); });
}

}  // namespace moestro::decode
