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

bool EndsLayers(const weights::ModelSpec& spec, const LayerStep& step) {
  return step.layer + 1 == spec.num_layers && (step.kind == StepKind::kDense || step.kind == StepKind::kSharedExpert);
}

absl::Status FetchResiduals(const weights::ModelSpec& spec, const LayerStep& step, const float* from,
                            std::span<float> to, device::Stream& stream) {
  if (to.empty() || !EndsLayers(spec, step)) return absl::OkStatus();
  return stream.CopyToHost(reinterpret_cast<uint8_t*>(to.data()), reinterpret_cast<const uint8_t*>(from),
                           static_cast<int64_t>(to.size_bytes()));
}

}  // namespace moestro::engine
