#include "services/decode/throughput/step_costs.h"

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/model/buffer.h"
#include "services/decode/throughput/batch_forward.h"

namespace moestro::decode {
namespace {

// Micro-batches of the step that shows what a task takes whatever its rows.
constexpr int64_t kFineParts = 8;
// Tokens of the step that shows what a token in the cache takes.
constexpr int64_t kLongContext = 1024;

double SecondsOf(const MeasuredStep& step, TaskKind kind) { return step.times.by_kind[static_cast<size_t>(kind)]; }
double CountOf(const MeasuredStep& step, TaskKind kind) {
  return static_cast<double>(std::ranges::count(step.list.tasks, kind, &Task::kind));
}

// What a task of the kind takes more with a longer context.
int64_t ContextOf(const BatchSize& size, TaskKind kind) {
  return kind == TaskKind::kLoadCache ? size.blocks : size.pairs;
}

// The cache of a measured step: more than processors keep, so that it is read from memory as in other steps, and no
// more than a role can take for a moment.
constexpr int64_t kScratchBytes = int64_t{1} << 30;

// Rows of as many sequences. Each sees `before` tokens of its own and writes into a page of its own, as far as
// kScratchBytes goes for either. Up to 64 may share a page: each writes another place there.
class ScratchStep {
 public:
  ScratchStep(const weights::ModelSpec& spec, int64_t sequences, int64_t before)
      : geometry_{.num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .kv_heads = spec.num_kv_heads} {
    const int64_t most = kScratchBytes / geometry_.page_bytes(), blocks = before / kv::kPageTokens;
    const int64_t written = std::clamp(most, CeilDiv(sequences, kv::kPageTokens), sequences);
    const int64_t read = std::min(sequences * blocks, most + 1);
    geometry_.page_count = written + read;
    memory_ = model::Buffer<uint8_t>(geometry_.page_count * geometry_.page_bytes());
    lists_.reserve(static_cast<size_t>(sequences));
    for (int32_t i = 0; i < sequences; ++i) {
      std::vector<uint32_t>& list = lists_.emplace_back();
      for (int64_t b = 0; b < blocks; ++b) list.push_back(static_cast<uint32_t>(written + (i * blocks + b) % read));
      list.push_back(static_cast<uint32_t>(i % written));
      pages_.emplace_back(geometry_, memory_.get(), list);
      const auto position = static_cast<int32_t>(before + i / written);
      rows_.push_back({.token = static_cast<int32_t>(i % spec.token_count), .position = position, .sequence = i});
      size_.pairs += position + 1;
      size_.blocks += CeilDiv(position, kv::kPageTokens);
    }
    size_.rows = sequences;
  }
  model::ForwardBatch batch() const { return {rows_, pages_}; }
  const BatchSize& size() const { return size_; }

 private:
  kv::KvGeometry geometry_;
  model::Buffer<uint8_t> memory_;
  std::vector<std::vector<uint32_t>> lists_;
  std::vector<kv::KvPages> pages_;
  std::vector<model::EngineRow> rows_;
  BatchSize size_;
};

absl::StatusOr<MeasuredStep> MeasureStep(BatchForward& forward, int64_t sequences, int64_t before, int64_t parts) {
  const ScratchStep scratch(forward.spec(), sequences, before);
  forward.set_micro_batch(CeilDiv(sequences, parts));
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first step touches memory, and may not find a layer there
    MOE_RETURN_IF_ERROR(forward.Forward(
        scratch.batch(), [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {}));
  }
  return MeasuredStep{forward.tasks(), scratch.size(), forward.times()};
}

}  // namespace

void BatchSize::Add(const model::CheckedBatch& batch) {
  rows += batch.size();
  for (const model::EngineRow& row : batch.rows) pairs += row.position + 1;
  for (const model::SequenceRun& run : batch.runs) blocks += CeilDiv(batch.rows[run.begin].position, kv::kPageTokens);
}

StepCosts::StepCosts(const MeasuredStep& coarse, const MeasuredStep& fine, const MeasuredStep& long_context) {
  const auto layers = static_cast<double>(coarse.list.shape.layers);
  const auto rows = static_cast<double>(coarse.size.rows);
  for (size_t i = 0; i < kTaskKinds; ++i) {
    const auto kind = static_cast<TaskKind>(i);
    Line& line = lines_[i];
    const double more_tasks = CountOf(fine, kind) - CountOf(coarse, kind);
    const double more = SecondsOf(fine, kind) - SecondsOf(coarse, kind);
    line.start = more_tasks > 0 ? std::max(0.0, more / more_tasks) : 0;
    const auto context = static_cast<double>(ContextOf(coarse.size, kind));
    const double longer = static_cast<double>(ContextOf(long_context.size, kind)) - context;
    if (longer > 0) {
      line.context = std::max(0.0, (SecondsOf(long_context, kind) - SecondsOf(coarse, kind)) / (layers * longer));
    }
    const double rest = SecondsOf(coarse, kind) - CountOf(coarse, kind) * line.start - layers * context * line.context;
    line.row = std::max(0.0, rest / (layers * rows));
  }
  const double loaded = CountOf(coarse, TaskKind::kLoadPage) / static_cast<double>(coarse.list.shape.micro_batches);
  layer_ = loaded > 0 ? SecondsOf(coarse, TaskKind::kLoadPage) / loaded : 0;
}

StepForecast StepCosts::Of(const TaskList& list, std::span<const BatchSize> micro_batches) const {
  return Forecast(list, [&](const Task& task) {
    if (task.kind == TaskKind::kLoadPage) return layer_ / static_cast<double>(list.shape.micro_batches);
    const BatchSize& size = micro_batches[static_cast<size_t>(task.part)];
    const Line& line = lines_[static_cast<size_t>(task.kind)];
    return line.start + line.row * static_cast<double>(size.rows) +
           line.context * static_cast<double>(ContextOf(size, task.kind));
  });
}

StepForecast StepCosts::Even(const TaskList& list, const BatchSize& step) const {
  std::vector<BatchSize> parts(static_cast<size_t>(list.shape.micro_batches));
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto share = [&](int64_t whole) {
      return EvenPart(whole, static_cast<int64_t>(i), std::ssize(parts)).size();
    };
    parts[i] = {share(step.rows), share(step.pairs), share(step.blocks)};
  }
  return Of(list, parts);
}

absl::StatusOr<StepCosts> MeasureStepCosts(BatchForward& forward, int64_t sequences) {
  // Where the device attends, as many sequences and tokens as it has room for.
  const int64_t room = forward.cache_tokens() / kv::kPageTokens;
  const bool together = forward.schedule() == BatchSchedule::kWholeLayer;
  if (together) sequences = std::clamp<int64_t>(room / 2, 1, sequences);
  const int64_t of_one =
      std::min(forward.spec().max_position_embeddings / kv::kPageTokens, together ? room / sequences : room);
  const int64_t before = std::clamp<int64_t>((of_one - 1) * kv::kPageTokens, 0, kLongContext);
  MOE_ASSIGN_OR_RETURN(const MeasuredStep coarse, MeasureStep(forward, sequences, 0, 1));
  MOE_ASSIGN_OR_RETURN(const MeasuredStep fine, MeasureStep(forward, sequences, 0, std::min(sequences, kFineParts)));
  MOE_ASSIGN_OR_RETURN(const MeasuredStep long_context, MeasureStep(forward, sequences, before, 1));
  return StepCosts(coarse, fine, long_context);
}

}  // namespace moestro::decode
