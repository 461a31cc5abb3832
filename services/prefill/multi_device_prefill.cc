#include "services/prefill/multi_device_prefill.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::prefill {
namespace {

// Of all ranks: bytes are summed; times are those of the slowest rank.
StreamCounters CountersOf(const std::vector<RankReport>& reports) {
  const auto longest = std::ranges::max_element(
      reports, {}, [](const RankReport& report) { return report.pipeline.counters.wall_seconds; });
  StreamCounters counters = longest->pipeline.counters;
  counters.runs = 1;
  counters.devices = std::ssize(reports);
  counters.streamed_bytes = counters.staged_bytes = counters.pageable_bytes = 0;
  for (const RankReport& report : reports) {
    const StreamCounters& rank = report.pipeline.counters;
    counters.streamed_bytes += rank.streamed_bytes;
    counters.staged_bytes += rank.staged_bytes;
    counters.pageable_bytes += rank.pageable_bytes;
    for (const collective::OperationCounters& exchange : report.exchanges) counters.link_bytes += exchange.sent_bytes;
  }
  return counters;
}

absl::Status CheckLoan(const DeviceLoan* loan) {
  if (loan == nullptr || !loan->wanted()) return absl::OkStatus();
  return absl::UnavailableError("the device's owner wants it back");
}

}  // namespace

MultiDevicePrefill::MultiDevicePrefill(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                       std::vector<PromptDevice> devices, const Options& options)
    : spec_(spec),
      weights_(weights),
      devices_(std::move(devices)),
      options_(options),
      peers_(options.peers),
      in_use_(devices_.size()) {
  MOE_CHECK(!devices_.empty());
}

void MultiDevicePrefill::SetShares(std::span<const int64_t> shares) {
  MOE_CHECK(shares.size() == devices_.size());
  for (size_t i = 0; i < devices_.size(); ++i) devices_[i].rank.share = shares[i];
}

std::vector<MultiDevicePrefill::SelectedDevice> MultiDevicePrefill::Select() {
  std::vector<SelectedDevice> selected;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const PromptDevice& device = devices_[i];
    if (!in_use_[i].expired()) continue;
    std::shared_ptr<const DeviceLoan> loan;
    if (device.borrow) {
      if (!whole_machine_) continue;
      loan = device.borrow();
      if (loan == nullptr) continue;
    }
    if (device.workers != nullptr) {
      WorkerPool& workers = *device.workers;
      workers.SetActiveThreads(whole_machine_ ? workers.threads() : workers.own_threads());
    }
    selected.push_back({&device, std::move(loan)});
  }
  return selected;
}

DistributedPrefill MultiDevicePrefill::GroupOf(const std::vector<SelectedDevice>& selected) const {
  std::vector<RankSetup> setups;
  for (const SelectedDevice& each : selected) {
    RankSetup setup = each.device->rank;
    // A rank that is left behind keeps its loan.
    if (each.loan != nullptr) setup.check = [loan = each.loan] { return CheckLoan(loan.get()); };
    setups.push_back(std::move(setup));
  }
  const double timeout = options_.timeout_seconds;
  return {spec_,
          weights_,
          std::move(setups),
          {.experts = options_.experts,
           .limits = options_.limits,
           .new_group =
               [timeout, peers = peers_](int ranks) {
                 return (peers ? NewPeerRankGroup : NewInProcessRankGroup)(ranks, {.timeout_seconds = timeout});
               },
           .patience_seconds = timeout}};
}

int64_t MultiDevicePrefill::PassesOf(const std::vector<SelectedDevice>& selected, IndexRange positions,
                                     model::MlaForm form) const {
  return selected.size() < 2 ? 0 : GroupOf(selected).Passes(positions, form).value_or(0);
}

absl::Status MultiDevicePrefill::CheckFits(IndexRange positions, model::MlaForm form) {
  const std::vector<SelectedDevice> selected = Select();
  if (selected.empty()) return absl::UnavailableError("no device is available now");
  if (PassesOf(selected, positions, form) > 0) return absl::OkStatus();
  return selected[0].device->single->CheckFits(positions, form);
}

int64_t MultiDevicePrefill::PassesTogether(IndexRange positions, model::MlaForm form, int64_t devices) const {
  std::vector<SelectedDevice> group;
  for (const PromptDevice& device : std::span(devices_).first(static_cast<size_t>(devices))) {
    group.push_back({&device, nullptr});
  }
  return PassesOf(group, positions, form);
}

absl::Status MultiDevicePrefill::Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages,
                                     model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted,
                                     const StreamEvents& events,
                                     absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  counters_ = {};
  single_ = nullptr;
  reports_.clear();
  if (rows.empty()) return absl::InvalidArgumentError("a streamed run needs rows");
  std::vector<SelectedDevice> selected = Select();
  IndexRange left{0, std::ssize(rows)};
  while (selected.size() > 1 && left.size() > 0) {
    const int64_t begin = rows[static_cast<size_t>(left.begin)].position;
    const int64_t passes = PassesOf(selected, {begin, begin + left.size()}, form);
    if (passes == 0) {
      LogInfo("{} tokens run on one device: they do not fit all together", left.size());
      break;
    }
    const IndexRange planned = left;
    const size_t devices = selected.size();
    for (int64_t i = 0; i < passes && selected.size() == devices; ++i) {
      const IndexRange part = EvenPart(planned.size(), i, passes);
      const IndexRange pass{planned.begin + part.begin, planned.begin + part.end};
      MOE_RETURN_IF_ERROR(RunPass(pass, rows, pages, form, interrupted, events, on_logits, selected));
      left.begin = pass.end;
    }
  }
  return left.size() == 0 ? absl::OkStatus()
                          : RunPass(left, rows, pages, form, interrupted, events, on_logits, selected);
}

absl::Status MultiDevicePrefill::RunPass(IndexRange pass, std::span<const model::EngineRow> all_rows,
                                         std::span<const kv::KvPages> pages, model::MlaForm form,
                                         absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                                         absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                                         std::vector<SelectedDevice>& selected) {
  const auto rows = all_rows.subspan(static_cast<size_t>(pass.begin), static_cast<size_t>(pass.size()));
  const auto in_all = [&](IndexRange range) { return IndexRange{pass.begin + range.begin, pass.begin + range.end}; };
  StreamEvents own{.on_layer =
                       [&](IndexRange range, int64_t layer) {
                         if (events.on_layer) events.on_layer(in_all(range), layer);
                       },
                   .on_pass =
                       [&](IndexRange range) {
                         if (events.on_pass) events.on_pass(in_all(range));
                       },
                   .on_step = events.on_step};
  if (!events.residuals.empty()) {
    own.residuals = events.residuals.subspan(static_cast<size_t>(pass.begin * spec_.hidden_size),
                                             static_cast<size_t>(pass.size() * spec_.hidden_size));
  }
  const auto on_own_logits = [&](int64_t row, std::span<const float> logits) { on_logits(pass.begin + row, logits); };
  const int64_t begin = rows.front().position;
  std::vector<float> kept;  // where nobody asks for residuals
  while (selected.size() > 1) {
    DistributedPrefill ranks = GroupOf(selected);
    if (!ranks.CheckFits({begin, begin + std::ssize(rows)}, form).ok()) break;  // with fewer devices than planned
    const absl::Status status = ranks.Run(rows, pages, form, interrupted, own, on_own_logits);
    Account(ranks, selected);
    if (status.ok() || ranks.failed_ranks().empty()) return status;
    if (DistributedPrefill::Kept& done = ranks.kept(); done.layers > 0) {
      if (own.residuals.empty()) {
        kept.resize(done.residuals.size());
        own.residuals = kept;
      }
      std::ranges::copy(done.residuals, own.residuals.begin());
      own.first_layer = done.layers;
    } else {
      counters_.repeated_layers += ranks.layers_done();
    }
    if (!TakesTheHost(ranks, status)) Drop(ranks, status, own.first_layer, selected);
  }
  if (selected.empty()) return absl::UnavailableError("no device is available now");
  return RunSingle(selected[0], rows, pages, form, interrupted, own, on_own_logits);
}

void MultiDevicePrefill::Account(const DistributedPrefill& ranks, const std::vector<SelectedDevice>& selected) {
  reports_ = ranks.reports();
  names_.clear();
  for (size_t rank = 0; rank < selected.size(); ++rank) {
    names_.push_back(absl::StrCat("rank ", rank, ": ", selected[rank].device->name));
    in_use_[static_cast<size_t>(selected[rank].device - devices_.data())] = ranks.in_use(static_cast<int>(rank));
  }
  counters_.Add(CountersOf(reports_));
}

bool MultiDevicePrefill::TakesTheHost(const DistributedPrefill& ranks, const absl::Status& status) {
  if (!ranks.copies_failed()) return false;
  peers_ = false;
  LogWarning("devices exchange through the host's memory from now on (--device-exchange host): {}",
             std::string(status.message()));
  return idle();
}

void MultiDevicePrefill::Drop(const DistributedPrefill& ranks, const absl::Status& status, int64_t layer,
                              std::vector<SelectedDevice>& selected) {
  counters_.lost_devices += std::ssize(ranks.failed_ranks());
  std::vector<SelectedDevice> left;
  std::vector<std::string> names;
  for (size_t rank = 0; rank < selected.size(); ++rank) {
    if (std::ranges::count(ranks.failed_ranks(), static_cast<int>(rank)) > 0) continue;
    names.push_back(selected[rank].device->name);
    left.push_back(std::move(selected[rank]));
  }
  LogWarning("a prompt on {} devices goes on from layer {} on {}: {}", selected.size(), layer,
             names.empty() ? "none" : absl::StrJoin(names, ", "), std::string(status.message()));
  selected = std::move(left);
}

absl::Status MultiDevicePrefill::RunSingle(
    const SelectedDevice& selected, std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages,
    model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
    absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const auto interrupted_or_taken_back = [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(interrupted());
    return CheckLoan(selected.loan.get());
  };
  single_ = selected.device->single;
  const absl::Status status =
      selected.device->single->Run(rows, pages, form, interrupted_or_taken_back, events, on_logits);
  counters_.Add(single_->run_counters());
  return status;
}

absl::Status MultiDevicePrefill::WriteTrace(const std::string& path) const {
  if (single_ != nullptr) return single_->WriteTrace(path);
  std::vector<DeviceTimeline> devices;
  for (size_t rank = 0; rank < reports_.size(); ++rank) {
    devices.push_back({names_[rank], &reports_[rank].pipeline.timeline, reports_[rank].pipeline.begin});
  }
  return WriteChromeTrace(devices, path);
}

}  // namespace moestro::prefill
