// Computes prompts on several devices together, in several passes if they must, or on fewer devices when some are
// unusable. A device that fails costs its prompt the time of the pass so far; one that its owner wants back costs none
// of the layers that are done. Prompts skip a device that hangs or is unavailable until it is back.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/platform/device_loan.h"
#include "common/platform/worker_pool.h"
#include "services/prefill/distributed/distributed_prefill.h"
#include "services/prefill/stream/prompt_prefill.h"

namespace moestro::prefill {

struct PromptDevice {
  std::string name;       // for messages
  RankSetup rank;         // the device as one of several
  PromptPrefill* single;  // the device by itself; outlives MultiDevicePrefill
  WorkerPool* workers;    // of the rank; null: none
  // Set for a device that another role owns; returns null while it is unavailable.
  std::function<std::shared_ptr<const DeviceLoan>()> borrow = nullptr;
};

class MultiDevicePrefill final : public PromptPrefill {
 public:
  struct Options {
    MemoryLimits limits;  // of each device
    roofline::ExpertParallelism experts = roofline::ExpertParallelism::kSmall;
    // How long a device that others wait for may show no sign of life.
    double timeout_seconds = 4;
    // Devices copy from each other's memory: collective::CheckPeers has found that they can. Until such a copy fails;
    // then, as otherwise, what they exchange goes through the host's memory.
    bool peers = false;
  };
  // Arguments as for DistributedPrefill. At least one device; borrowed ones come last.
  MultiDevicePrefill(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                     std::vector<PromptDevice> devices, const Options& options);

  // All devices are of one kind.
  model::MlaForm FormFor(model::MlaForm wanted) const override { return devices_[0].single->FormFor(wanted); }
  // How prompts are cut from now on: RankSetup's shares of all devices. REQUIRES: no prompt runs.
  void SetShares(std::span<const int64_t> shares);
  absl::Status CheckFits(IndexRange positions, model::MlaForm form) override;
  // The passes in which the first so many devices, usable now or not, can compute it together; 0: in none.
  int64_t PassesTogether(IndexRange positions, model::MlaForm form, int64_t devices) const;
  absl::Status Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, model::MlaForm form,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;
  // Only whole-machine prompts use borrowed devices.
  void UseWholeMachine(bool whole) override { whole_machine_ = whole; }
  StreamCounters run_counters() const override { return counters_; }
  bool exchanges_by_peers() const { return peers_; }
  // False while a rank that was left behind still uses its device.
  bool idle() const {
    return std::ranges::all_of(in_use_, [](const std::weak_ptr<const void>& use) { return use.expired(); });
  }
  absl::Status WriteTrace(const std::string& path) const override;

 private:
  struct SelectedDevice {
    const PromptDevice* device = nullptr;
    std::shared_ptr<const DeviceLoan> loan;  // null: the role's own
  };
  // Devices that are usable now.
  std::vector<SelectedDevice> Select();
  DistributedPrefill GroupOf(const std::vector<SelectedDevice>& selected) const;
  int64_t PassesOf(const std::vector<SelectedDevice>& selected, IndexRange positions, model::MlaForm form) const;
  // These rows, after those before them: by the selected devices together, where they fit, and otherwise by the first.
  // Devices that are lost are not selected any more.
  absl::Status RunPass(IndexRange pass, std::span<const model::EngineRow> all_rows, std::span<const kv::KvPages> pages,
                       model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                       std::vector<SelectedDevice>& selected);
  void Account(const DistributedPrefill& ranks, const std::vector<SelectedDevice>& selected);
  // After a run that failed: whether all devices begin again, with exchanges through the host's memory.
  bool TakesTheHost(const DistributedPrefill& ranks, const absl::Status& status);
  // Removes the devices that failed. layer: where the others go on.
  void Drop(const DistributedPrefill& ranks, const absl::Status& status, int64_t layer,
            std::vector<SelectedDevice>& selected);
  absl::Status RunSingle(const SelectedDevice& selected, std::span<const model::EngineRow> rows,
                         std::span<const kv::KvPages> pages, model::MlaForm form,
                         absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                         absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  std::vector<PromptDevice> devices_;
  const Options options_;
  bool whole_machine_ = false;
  bool peers_ = false;
  std::vector<std::weak_ptr<const void>> in_use_;  // per device: held by a rank that was left behind

  // Results of the last run.
  StreamCounters counters_;
  const PromptPrefill* single_ = nullptr;  // the device it ended on, if only one
  std::vector<RankReport> reports_;
  std::vector<std::string> names_;  // of the devices in `reports_`
};

}  // namespace moestro::prefill
