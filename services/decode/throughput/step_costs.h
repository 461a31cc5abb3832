// What a step's tasks take on this machine, from three steps that it has run: the forecast by which a step is cut into
// micro-batches, "MoE-Lightning", section 4.2, with times in place of peak rates.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/model/batch.h"
#include "services/decode/throughput/pipeline.h"
#include "services/decode/throughput/task_list.h"

namespace moestro::decode {

// A micro-batch, or a whole step.
struct BatchSize {
  int64_t rows = 0;
  int64_t pairs = 0;   // of a row and a token that it sees
  int64_t blocks = 0;  // of the cache that have tokens before the step

  void Add(const model::CheckedBatch& batch);
};

// A step that was measured.
struct MeasuredStep {
  TaskList list;
  BatchSize size;
  StepTimes times;
};

class StepCosts {
 public:
  // `coarse` and `fine` have the same rows in few and in more micro-batches (or as many: then a task takes no time of
  // its own); `long_context` has the micro-batches of `coarse`, whose rows see more tokens.
  StepCosts(const MeasuredStep& coarse, const MeasuredStep& fine, const MeasuredStep& long_context);

  // Of a list whose micro-batches have these sizes.
  StepForecast Of(const TaskList& list, std::span<const BatchSize> micro_batches) const;
  // Of so many micro-batches, if `step` is cut evenly.
  StepForecast Even(const TaskList& list, const BatchSize& step) const;

 private:
  struct Line {
    double start = 0;  // of each task
    double row = 0;
    double context = 0;  // for each pair; of kLoadCache for each block
  };
  std::array<Line, kTaskKinds> lines_;
  double layer_ = 0;  // loading of a layer's weights, in however many pages
};

class BatchForward;

// Runs steps of so many sequences, in micro-batches of the forward pass's schedule, on pages of its own.
absl::StatusOr<StepCosts> MeasureStepCosts(BatchForward& forward, int64_t sequences);

}  // namespace moestro::decode
