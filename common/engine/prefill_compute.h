// What a device computes of a prompt whose weights come module by module. One implementation for every kind of kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/device/device.h"
#include "common/engine/weight_image.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"

namespace moestro::engine {

// kDispatch and kCombine wait for exchanges with other ranks: for the rows that a layer's experts get, and for what
// they made of the rank's own.
enum class StepKind { kEmbed, kAttention, kDense, kRoute, kDispatch, kExperts, kCombine, kSharedExpert, kHead };
const char* StepName(StepKind kind);

// Whose rows a step of experts computes, where ranks exchange them: the rank's own rows are there first.
enum class WhoseRows { kAll, kOwn, kOthers };

// What is launched on the device as one.
struct LayerStep {
  StepKind kind = StepKind::kEmbed;
  int64_t pass = 0;
  int64_t layer = 0;
  WhoseRows rows = WhoseRows::kAll;
};

// Experts that one launch computes at most: more gain nothing.
inline constexpr int64_t kMaxExpertsTogether = 16;

// Layers whose KV may be on the device at once: one is computed while the other's is on its way to the host. The n-th
// attention step of a run has buffer n mod kKvBuffers.
inline constexpr int64_t kKvBuffers = 2;

// A prompt, or what is left of it, and how it is cut.
struct PromptRun {
  std::span<const model::EngineRow> rows;  // of one sequence, at consecutive positions
  std::span<const kv::KvPages> pages;      // of that sequence
  model::MlaForm form = model::MlaForm::kUnabsorbed;
  int64_t passes = 1;
  int64_t spare_bytes = 0;  // of device memory, beside ActivationBytes: the computation may take them
  // [rows, hidden_size], host memory. With first_layer > 0 it has what the layers before have left of the rows. It gets
  // what the last layer leaves. Empty: neither.
  std::span<float> residuals = {};
  int64_t first_layer = 0;  // the KV of the rows in earlier layers is in the pages

  IndexRange PassRows(int64_t pass) const { return EvenPart(std::ssize(rows), pass, passes); }
  int64_t max_pass_rows() const { return CeilDiv(std::ssize(rows), passes); }
  // Tokens before a pass, at most: before the last one.
  int64_t most_tokens_before() const { return rows[PassRows(passes - 1).begin].position; }
  std::span<float> PassResiduals(int64_t pass) const {
    const size_t width = residuals.size() / rows.size();
    const IndexRange of = PassRows(pass);
    return residuals.subspan(of.begin * width, of.size() * width);
  }
};

// INVALID_ARGUMENT names what is wrong: rows and pages as for Engine::Forward, of one sequence; at most kLogitRows rows
// want logits, all in the last pass.
absl::Status CheckRun(const weights::ModelSpec& spec, const PromptRun& run);

// The modules of a run that begins at this layer.
std::vector<Module> ModulesFrom(int64_t first_layer, std::vector<Module> modules);
// After the step that embeds, in a run that does not begin at the first layer, puts the copy of the residuals to the
// device on the stream; after the step that ends the last layer the copy to the host; after others nothing.
absl::Status MoveResiduals(const weights::ModelSpec& spec, const LayerStep& step, int64_t first_layer,
                           std::span<float> on_host, float* on_device, device::Stream& stream);

// The steps of a run on one device: of a prompt, or of a rank's share of one.
class StepCompute {
 public:
  virtual ~StepCompute() = default;

  // Puts the step on the stream. `modules` are those that it uses, there when the stream gets to it. Called for all
  // steps in order, by one thread. When `stopped` is true, work that has not begun need not be done any more.
  virtual absl::Status Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                              const std::atomic<bool>& stopped) = 0;
  // Puts the copies of what the step leaves for the host on the stream: a layer's KV. Called by another thread, after
  // the step is done, and done before Launch is called for the attention step kKvBuffers after it.
  virtual absl::Status Store(const LayerStep& step, device::Stream& stream) = 0;
};

// A prompt on one device.
class PrefillCompute : public StepCompute {
 public:
  // Device memory that a run of passes of so many rows takes, weights not counted.
  virtual int64_t ActivationBytes(int64_t pass_rows) const = 0;
  // UNIMPLEMENTED names the form that the kernels have in place of this one.
  virtual absl::Status CheckForm(model::MlaForm form) const = 0;
  // A new run, whose spans live until it ends. Checks it, and its form.
  virtual absl::Status Begin(const PromptRun& run) = 0;
  // After the last step: logits of the rows that want them, in row order.
  virtual absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;
  // The run is over, however it ended: nothing of it is on a stream any more.
  virtual void End() = 0;
};

}  // namespace moestro::engine
