// Prompts on several devices together, and on fewer when some of them cannot be used: one that fails costs its prompt
// time, one that hangs or is not to be had is done without until it is back.
#pragma once

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

namespace moestro {

struct PromptDevice {
  std::string name;      // for people
  RankSetup rank;        // the device among others
  PromptPrefill* alone;  // the device by itself; outlives PromptDevices
  WorkerPool* workers;   // of the rank; null: none
  // Set if the device is somebody else's: null if it is not to be had.
  std::function<std::shared_ptr<const DeviceLoan>()> borrow = nullptr;
};

class PromptDevices final : public PromptPrefill {
 public:
  struct Options {
    MemoryLimits limits;  // of each device
    // How long a device that others wait for may show no sign of life.
    double timeout_seconds = 4;
  };
  // As DistributedPrefill's. At least one device; those that are borrowed come last.
  PromptDevices(const ModelSpec& spec, const ModelWeights& weights, std::vector<PromptDevice> devices,
                const Options& options);

  // All devices are of one kind.
  MlaForm FormFor(MlaForm wanted) const override { return devices_[0].alone->FormFor(wanted); }
  absl::Status CheckFits(IndexRange positions, MlaForm form) override;
  absl::Status Run(std::span<const EngineRow> rows, std::span<const KvPages> pages, MlaForm form,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;
  // Borrowed devices are used for whole-machine prompts only.
  void UseWholeMachine(bool whole) override { whole_machine_ = whole; }
  StreamCounters run_counters() const override { return counters_; }
  absl::Status WriteTrace(const std::string& path) const override;

 private:
  struct Taken {
    const PromptDevice* device = nullptr;
    std::shared_ptr<const DeviceLoan> loan;  // null: the role's own
  };
  // Devices that can be used now.
  std::vector<Taken> Take();
  DistributedPrefill Together(const std::vector<Taken>& taken) const;
  void Account(const DistributedPrefill& ranks, const std::vector<Taken>& taken);
  // Forgets those that failed.
  void Drop(const DistributedPrefill& ranks, const absl::Status& status, std::vector<Taken>& taken);
  absl::Status RunAlone(const Taken& taken, std::span<const EngineRow> rows, std::span<const KvPages> pages,
                        MlaForm form, absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                        absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const std::vector<PromptDevice> devices_;
  const Options options_;
  bool whole_machine_ = false;
  std::vector<std::weak_ptr<const void>> in_use_;  // of each device: by a rank that was left behind

  // Of the last run.
  StreamCounters counters_;
  const PromptPrefill* alone_ = nullptr;  // what it ended on, if not on several
  std::vector<RankReport> reports_;
  std::vector<std::string> names_;  // of the reports' devices
};

}  // namespace moestro
