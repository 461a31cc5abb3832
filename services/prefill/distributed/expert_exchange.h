// Expert parallelism: how rows come to the ranks that have their experts, and what experts made of them comes back. Two
// ways behind one interface: SmallEP ("Cloud-grade SLOs for local MoE", section 3.2, Fig. 6) and standard EP, what it
// is compared with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/collective/communicator.h"
#include "common/device/device.h"
#include "common/engine/prefill_compute.h"
#include "common/engine/rank_kernels.h"
#include "common/roofline/traffic.h"
#include "services/prefill/distributed/exchanges.h"
#include "services/prefill/distributed/revocable_pages.h"
#include "services/prefill/distributed/split.h"

namespace moestro::prefill {

// A rank's share of a prompt, and how it gets at the pages. What it refers to lives until the run ends.
struct RankRun {
  const ZigZagSplit* split = nullptr;
  int rank = 0;
  std::span<const model::EngineRow>
      rows;                               // the rank's, stripe by stripe; those of a stripe have its number as sequence
  const RevocablePages* pages = nullptr;  // of the prompt; null: the run is only planned
  model::MlaForm form = model::MlaForm::kUnabsorbed;
  std::span<float> residuals = {};  // as PromptRun's, of the rank's rows
  int64_t first_layer = 0;          // as PromptRun's
  int64_t spare_bytes = 0;          // as PromptRun's, beside RankBytes

  int64_t own_rows() const { return std::ssize(rows); }
  int64_t all_rows() const { return split->tokens(); }
  int ranks() const { return split->ranks(); }
  IndexRange experts(const weights::ModelSpec& spec) const { return roofline::RankExperts(spec, split->parts(), rank); }
  engine::RankShare share() const;  // as its kernels see it
};

// What launches a kernel of the run: ends it early when the run is given up.
using LaunchKernel = absl::FunctionRef<absl::Status(device::Kernel kernel)>;

// Bytes of a row: what experts read (BF16), what they make of it (F32), which they are.
constexpr int64_t XBytes(const weights::ModelSpec& spec) { return 2 * spec.hidden_size; }
constexpr int64_t SumBytes(const weights::ModelSpec& spec) { return 4 * spec.hidden_size; }
constexpr int64_t ChoiceBytes(const weights::ModelSpec& spec) {
  return static_cast<int64_t>(sizeof(model::ExpertChoice)) * spec.experts_per_token;
}

// What a step's functions work with.
struct RankStep {
  int64_t layer = 0;
  device::Stream& stream;  // that computes
  const std::atomic<bool>& stopped;
  LaunchKernel launch;
};

class ExpertExchange {  // of one rank, one run at a time
 public:
  virtual ~ExpertExchange() = default;

  // Takes the device memory that the run's exchanges need.
  virtual absl::Status Begin(const RankRun& run) = 0;
  virtual void End() = 0;

  // A layer, in the order of the schedule's steps (ScheduleOptions::exchanges). The rows are on their way from Route to
  // Dispatch, and what experts made of them from the last Experts that others' rows need to Combine.
  virtual absl::Status Route(const engine::StagedModule& router, const RankStep& step) = 0;
  virtual absl::Status Dispatch(const RankStep& step) = 0;
  // Some of the rank's experts, in ascending id.
  virtual absl::Status Experts(std::span<const engine::StagedModule> experts, engine::WhoseRows rows,
                               const RankStep& step) = 0;
  // After the shared expert. Ends the layer.
  virtual absl::Status Combine(const engine::StagedModule& router, const RankStep& step) = 0;
};

// Device memory that the largest exchange of a run takes.
int64_t SmallEpBytes(const weights::ModelSpec& spec, const RankRun& run);
// If experts are chosen evenly, with room for half as many pairs again. More is taken if it must and can be.
int64_t StandardEpBytes(const weights::ModelSpec& spec, const RankRun& run);

// All arguments outlive the result.
//
// SmallEP: all rows go to all ranks, together with the experts that they were routed to; each rank computes what its
// own experts make of all rows and sends the sums back, which are added up in the order of ranks. Rows are routed by
// the rank that has them, in F32 as on one device: that is 8 bytes an expert, where routing all rows everywhere would
// need them in F32, twice the bytes, or choose other experts.
std::unique_ptr<ExpertExchange> NewSmallEp(const weights::ModelSpec& spec, device::Device& device,
                                           collective::Communicator& communicator, engine::RankKernels& kernels,
                                           Exchanges& exchanges);
// Standard EP: a row goes to each of its experts, and comes back from each; the sums have the bits of one device.
std::unique_ptr<ExpertExchange> NewStandardEp(const weights::ModelSpec& spec, device::Device& device,
                                              collective::Communicator& communicator, engine::RankKernels& kernels,
                                              Exchanges& exchanges);

}  // namespace moestro::prefill
