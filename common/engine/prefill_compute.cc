#include "common/engine/prefill_compute.h"

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/batch.h"
#include "common/model/head.h"

namespace moestro::engine {

const char* StepName(StepKind kind) {
  switch (kind) {
    case StepKind::kEmbed:
      return "embed";
    case StepKind::kAttention:
      return "attention";
    case StepKind::kDense:
      return "dense";
    case StepKind::kRoute:
      return "route";
    case StepKind::kDispatch:
      return "dispatch";
    case StepKind::kExperts:
      return "experts";
    case StepKind::kCombine:
      return "combine";
    case StepKind::kSharedExpert:
      return "shared expert";
    case StepKind::kHead:
      return "head";
  }
  return "";
}

absl::Status CheckRun(const weights::ModelSpec& spec, const PromptRun& run) {
  MOE_ASSIGN_OR_RETURN(const model::CheckedBatch batch,
                       model::CheckBatch(spec, std::ssize(run.rows), {run.rows, run.pages, run.form}));
  if (batch.runs.size() != 1) return absl::InvalidArgumentError("a streamed run takes rows of one sequence");
  const IndexRange last = run.PassRows(run.passes - 1);
  const std::vector<int64_t> wanted = model::RowsWithLogits(run.rows);
  if (!wanted.empty() && wanted.front() < last.begin) {
    return absl::InvalidArgumentError("only rows of a streamed run's last pass can want logits");
  }
  if (std::ssize(wanted) <= model::kLogitRows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%d rows want logits, a streamed run gives %d at most", wanted.size(), model::kLogitRows));
}

std::vector<Module> ModulesFrom(int64_t first_layer, std::vector<Module> modules) {
  std::erase_if(modules, [&](const Module& module) { return module.layer < first_layer; });
  return modules;
}

absl::Status MoveResiduals(const weights::ModelSpec& spec, const LayerStep& step, int64_t first_layer,
                           std::span<float> on_host, float* on_device, device::Stream& stream) {
  if (on_host.empty()) return absl::OkStatus();
  auto* const host = reinterpret_cast<uint8_t*>(on_host.data());
  auto* const device = reinterpret_cast<uint8_t*>(on_device);
  const auto bytes = static_cast<int64_t>(on_host.size_bytes());
  if (step.kind == StepKind::kEmbed && first_layer > 0) return stream.CopyToDevice(device, host, bytes);
  const bool ends_layer =
      step.kind == StepKind::kDense || step.kind == StepKind::kSharedExpert || step.kind == StepKind::kCombine;
  if (ends_layer && step.layer + 1 == spec.num_layers) return stream.CopyToHost(host, device, bytes);
  return absl::OkStatus();
}

}  // namespace moestro::engine
