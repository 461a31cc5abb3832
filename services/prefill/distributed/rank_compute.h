// The steps of one rank: what its kernels compute, and the exchanges with other ranks between.
//
// Attention ("Cloud-grade SLOs for local MoE", Fig. 2): a rank projects keys and values of its rows, attends to them
// (phase 1), and meanwhile the ring passes every rank's keys and values on, rank after rank; what has arrived is
// attended to next (phase 2), and the partial results merge by log-sum-exp. For MLA a token's keys and values are its
// latent vector, as in the cache. What is cached before the prompt comes from its pages, read a layer ahead. Between
// pages and device the host has a copy of a layer, so that no stream ever holds an address of a page.
//
// All exchanges and copies are those of Exchanges, beside what is computed.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/engine/prefill_compute.h"
#include "common/engine/rank_kernels.h"
#include "common/weights/model_spec.h"
#include "services/prefill/distributed/expert_exchange.h"

namespace moestro::prefill {

// Device memory that a rank's run takes, weights not counted.
int64_t RankBytes(const weights::ModelSpec& spec, const engine::RankKernels& kernels,
                  roofline::ExpertParallelism experts, const RankRun& run);

class RankCompute final : public engine::StepCompute {
 public:
  // All outlive it.
  RankCompute(const weights::ModelSpec& spec, device::Device& device, collective::Communicator& communicator,
              engine::RankKernels& kernels, ExpertExchange& experts, Exchanges& exchanges)
      : spec_(spec),
        device_(device),
        communicator_(communicator),
        kernels_(kernels),
        experts_(experts),
        exchanges_(exchanges) {}

  // Takes the device memory that the rank's share of a prompt needs. Checks its form.
  absl::Status Begin(const RankRun& run);
  // Blocks the caller while the step needs what others have not sent yet.
  absl::Status Launch(const engine::LayerStep& step, std::span<const engine::StagedModule> modules,
                      device::Stream& stream, const std::atomic<bool>& stopped) override;
  // The rank's rows are on the host when the step is done, and go to the pages here.
  absl::Status Store(const engine::LayerStep& step, device::Stream& stream) override;
  // After the last step: logits of the rank's rows that want them, in row order.
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
    return kernels_.Logits(on_logits);
  }
  // After a run that has ended early, between two layers: what they carry on, of the rank's rows, F32 [rows,
  // hidden_size].
  absl::StatusOr<std::vector<float>> Residuals();
  // The run is over, however it ended: nothing of it is on a stream any more.
  void End();

 private:
  int64_t token_bytes() const { return 2 * spec_.kv_dim(); }
  bool stores() const { return run_.pages->pages().capacity() > 0; }
  uint16_t* kv() const { return reinterpret_cast<uint16_t*>(kv_.data()); }
  uint8_t* Kv(int64_t position) const { return kv_.data() + position * token_bytes(); }

  absl::Status Attention(const engine::StagedModule& module, const RankStep& step);
  // Exchanges. From the pages to the host, and between the host's copies and kv_.
  absl::Status ReadPrefix(int64_t layer);
  absl::Status LoadPrefix(int64_t layer, device::Stream& stream);
  absl::Status StoreRows(int64_t layer, device::Stream& stream);
  std::vector<uint8_t>& stored(int64_t layer) { return stored_[layer % engine::kKvBuffers]; }
  // The ring's n-th pass, 1 .. ranks - 1.
  absl::Status PassKv(int64_t pass, const collective::Call& call);
  // Whose keys and values this rank has after `passes` passes.
  int HolderAfter(int64_t passes) const;
  std::vector<IndexRange> BlocksAfter(int64_t passes) const;

  const weights::ModelSpec& spec_;
  device::Device& device_;
  collective::Communicator& communicator_;
  engine::RankKernels& kernels_;
  ExpertExchange& experts_;
  Exchanges& exchanges_;

  // Of the run.
  RankRun run_;
  device::Memory kv_;  // BF16 [positions, kv_dim] of the layer, whole blocks
  // On the host.
  std::vector<uint8_t> prefix_;  // what is cached, of layer prefix_layer_: the exchanges' thread's
  int64_t prefix_layer_ = -1;
  std::vector<uint8_t>
      stored_[engine::kKvBuffers];  // the rank's rows, stripe by stripe, of the layer and of the one before
  std::unique_ptr<device::Event> before_;
  std::unique_ptr<device::Event> projected_;
};

}  // namespace moestro::prefill
