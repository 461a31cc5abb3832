#include "services/decode/overlap/hybrid_forward.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::decode {
namespace {

// part = the runs [begin, end) of a batch, as a batch of their own.
void TakePart(const model::CheckedBatch& batch, size_t begin, size_t end, model::CheckedBatch& part) {
  const int64_t first_row = batch.runs[begin].begin;
  const int64_t rows = batch.runs[end - 1].end - first_row;
  part.rows = batch.rows.subspan(static_cast<size_t>(first_row), static_cast<size_t>(rows));
  part.sequences = batch.sequences;
  part.form = batch.form;
  part.runs.clear();
  for (size_t i = begin; i < end; ++i) {
    part.runs.push_back({batch.runs[i].begin - first_row, batch.runs[i].end - first_row});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HybridForward>> HybridForward::Create(const weights::ModelSpec& spec,
                                                                     device::Device& device,
                                                                     engine::DecodeCompute& compute,
                                                                     engine::RoutedExperts& experts, Options options) {
  std::unique_ptr<HybridForward> forward(new HybridForward(spec, device, compute, experts, std::move(options)));
  for (int lane = 0; lane < engine::kMaxLanes; ++lane) {
    MOE_ASSIGN_OR_RETURN(forward->lanes_[static_cast<size_t>(lane)],
                         Lane::Create(forward->shared_, lane, forward->max_rows()));
  }
  return forward;
}

absl::Status HybridForward::Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                                    absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(shared_.compute.CheckForm(batch.form));
  MOE_RETURN_IF_ERROR(model::CheckBatch(spec(), max_rows(), batch, batch_));
  const std::vector<model::SequenceRun>& runs = batch_.runs;
  for (size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    int64_t pages = 0;
    do {
      pages += engine::VisiblePages(batch_, runs[end++]);
    } while (end < runs.size() && pages + engine::VisiblePages(batch_, runs[end]) <= shared_.compute.most_pages());
    if (begin == 0 && end == runs.size()) return ForwardPart(batch_, 0, interrupted, on_logits);
    TakePart(batch_, begin, end, part_);
    MOE_RETURN_IF_ERROR(ForwardPart(part_, runs[begin].begin, interrupted, on_logits));
  }
  return absl::OkStatus();
}

absl::Status HybridForward::ForwardPart(const model::CheckedBatch& part, int64_t first_row,
                                        absl::FunctionRef<absl::Status()> interrupted,
                                        absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  shared_.first_row = first_row;
  absl::Status status = RunLanes(part, interrupted);
  if (status.ok()) {
    status = shared_.compute.Logits(part.rows, lane(0).stream(), [&](int64_t row, std::span<const float> logits) {
      on_logits(first_row + row, logits);
    });
    if (!status.ok()) status = lane(0).Renew(status);
  }
  for (int index = 0; !status.ok() && index < engine::kMaxLanes; ++index) shared_.compute.Abandon(index);
  return status;
}

absl::Status HybridForward::RunLanes(const model::CheckedBatch& part, absl::FunctionRef<absl::Status()> interrupted) {
  const size_t runs = part.runs.size();
  const size_t first = runs > 1 ? options_.split(part) : runs;
  MOE_CHECK(first >= 1 && first <= runs);
  const int lanes = first == runs ? 1 : engine::kMaxLanes;
  shared_.device_order.Begin(lanes);
  shared_.expert_order.Begin(lanes);
  shared_.failed = false;
  if (lanes == 1) return lane(0).Run(0, part, interrupted);
  TakePart(part, 0, first, cuts_[0]);
  TakePart(part, first, runs, cuts_[1]);
  MOE_RETURN_IF_ERROR(RunBoth(interrupted));
  ++overlapped_steps_;
  return absl::OkStatus();
}

absl::Status HybridForward::RunBoth(absl::FunctionRef<absl::Status()> interrupted) {
  absl::Status second_status;
  double seconds = shared_.device.Now();  // where time is simulated, it passes from thread to thread
  const auto run_second = [&] {
    shared_.device.AdvanceTo(seconds);
    second_status = lane(1).Run(cuts_[0].size(), cuts_[1], [] { return absl::OkStatus(); });
    seconds = shared_.device.Now();
  };
  second_thread_.Start(run_second);
  const absl::Status first_status = lane(0).Run(0, cuts_[0], interrupted);
  second_thread_.Wait();
  shared_.device.AdvanceTo(seconds);
  // A lane that stopped because the other one failed says so, and the other one why.
  return first_status.ok() ||
                 (absl::IsCancelled(first_status) && !second_status.ok() && !absl::IsCancelled(second_status))
             ? second_status
             : first_status;
}

}  // namespace moestro::decode
