// What computes a decode step, "Cloud-grade SLOs for local MoE", section 2.2.1: a device everything but the routed
// experts, something else these, and the device those experts that it holds. One implementation for every kind of
// kernel.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/kv/pages.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/moe/gating.h"

namespace moestro::engine {

// Micro-batches that a step has at most. A lane is what computes one of them.
inline constexpr int kMaxLanes = 2;

// What routed experts read and write of a lane's rows in one layer. Twice: in device memory, and in pinned host memory.
struct ExpertIo {
  uint16_t* x = nullptr;                   // BF16 [rows, hidden]
  model::ExpertChoice* choices = nullptr;  // [rows, experts_per_token], each row's in ascending id
  float* sums = nullptr;                   // F32 [rows, hidden]: of weight * expert(x), in ascending id
};

// An expert that the device holds, for rows [begin, begin + count) of the input.
struct HotExpert {
  model::MlpWeights weights;
  int64_t begin = 0;
  int64_t count = 0;
  device::Event* loaded = nullptr;  // the stream waits for it before this expert and those behind; null: it is there
};

// KV pages that a sequence's rows see.
inline int64_t VisiblePages(const model::CheckedBatch& batch, const model::SequenceRun& run) {
  return batch.rows[run.end - 1].position / kv::kPageTokens + 1;
}

// Calls put work on the stream and return. One thread for each lane calls; lanes do not wait for each other here.
class DecodeCompute {
 public:
  virtual ~DecodeCompute() = default;

  // UNIMPLEMENTED names the form that the kernels have in place of this one.
  virtual absl::Status CheckForm(model::MlaForm form) const = 0;
  // The lane's rows in the step that begins, `first_row` of all rows and the following. They live until it ends.
  // REQUIRES a form that CheckForm accepts.
  virtual void Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) = 0;
  virtual absl::Status Embed(int lane, device::Stream& stream) = 0;
  // residual += attention. Then the MLP of a dense layer; or x and choices, for a layer's experts.
  virtual absl::Status Attend(int lane, int64_t layer, device::Stream& stream) = 0;
  // shared = shared expert(x)
  virtual absl::Status Shared(int lane, int64_t layer, device::Stream& stream) = 0;
  // residual += sums + shared, and what of the next layer's Attend depends on nothing else
  virtual absl::Status Combine(int lane, int64_t layer, device::Stream& stream) = 0;
  // outputs[row] = expert(x[row]) for the rows of all experts, which lie one behind the other's. x: BF16, outputs: F32,
  // both [rows, hidden] in device memory. By one thread at a time, and when what the last call put on its stream is
  // done. UNIMPLEMENTED if no experts were to be held.
  virtual absl::Status HotExperts(std::span<const HotExpert> /*experts*/, const uint16_t* /*x*/, float* /*outputs*/,
                                  device::Stream& /*stream*/) {
    return absl::UnimplementedError("the device holds no experts");
  }
  // After a step that failed, when nothing of it is on a stream any more.
  virtual void Abandon(int /*lane*/) {}
  // KV pages of all sequences together that a step may see: one with more must come in parts.
  virtual int64_t most_pages() const { return std::numeric_limits<int64_t>::max(); }
  // The device's side of what is handed over.
  virtual ExpertIo expert_io(int lane) const = 0;
  // True: from now on the lane's Combine reads the sums of a step from `host`, [rows, hidden] with at most `rows` rows,
  // as long as it lives, so nobody copies them to the device.
  virtual bool ReadSums(int /*lane*/, const float* /*host*/, int64_t /*rows*/) { return false; }
  // True: from now on the lane's Attend itself leaves x and choices in `host`, pinned memory for `rows` rows that lives
  // as long as the steps, so nobody copies them to the host.
  virtual bool HandsOver(int /*lane*/, const ExpertIo& /*host*/, int64_t /*rows*/) { return false; }
  // Whether those of the last Attend of a layer with experts are there: also before the stream is done. Asks host
  // memory alone. REQUIRES that HandsOver was true.
  virtual bool IsHandedOver(int /*lane*/) { return false; }
  // After the layers of all lanes: hands out the logits of the rows that want them, in row order. Waits for them.
  virtual absl::Status Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                              absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;
};

// The routed experts, beside the device.
class RoutedExperts {
 public:
  virtual ~RoutedExperts() = default;
  // Fills rows.sums from rows.x and rows.choices, all in host memory. One call at a time, from any thread.
  virtual absl::Status Run(int64_t layer, int64_t count, const ExpertIo& rows) = 0;
};

}  // namespace moestro::engine
