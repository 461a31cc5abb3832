// The forecast of a step from three measured ones.
#include "services/decode/throughput/step_costs.h"

#include <gtest/gtest.h>

#include <map>

namespace moestro::decode {
namespace {

using enum TaskKind;

constexpr StepShape kShape{.layers = 4, .streamed = {}, .micro_batches = 1, .first_is_there = true};

TaskList List(int64_t parts, BatchSchedule schedule = BatchSchedule::kCgoPipe) {
  StepShape shape = kShape;
  shape.streamed = {0, 1, 2, 3};
  shape.micro_batches = parts;
  return ListTasks(schedule, shape);
}

// A machine on which tasks take just what the costs can express.
double SecondsOf(const Task& task, int64_t parts, const BatchSize& part) {
  const auto rows = static_cast<double>(part.rows), pairs = static_cast<double>(part.pairs);
  switch (task.kind) {
    case kLoadPage:
      return 0.8 / static_cast<double>(parts);
    case kLoadCache:
      return 0.004 + 0.002 * static_cast<double>(part.blocks);
    case kHostAttention:
      return 0.01 + 0.001 * rows + 0.0002 * pairs;
    case kPostAttention:
      return 0.05 + 0.002 * rows;
    default:
      return 0.003 + 0.0001 * rows;
  }
}

// Rows that divide evenly.
MeasuredStep Measured(int64_t parts, const BatchSize& size, BatchSchedule schedule = BatchSchedule::kCgoPipe) {
  MeasuredStep step{.list = List(parts, schedule), .size = size, .times = {}};
  const BatchSize part{size.rows / parts, size.pairs / parts, size.blocks / parts};
  const auto seconds = [&](const Task& task) { return SecondsOf(task, parts, part); };
  const StepForecast forecast = Forecast(step.list, seconds);
  step.times.seconds = forecast.seconds;
  step.times.busy = forecast.busy;
  for (const Task& task : step.list.tasks) step.times.by_kind[static_cast<size_t>(task.kind)] += seconds(task);
  return step;
}

StepCosts Costs(BatchSchedule schedule) {
  return {Measured(1, {64, 640, 0}, schedule), Measured(8, {64, 640, 0}, schedule),
          Measured(1, {64, 64'000, 1'024}, schedule)};
}

TEST(StepCosts, ForecastWhatTheyWereMeasuredFrom) {
  for (const BatchSchedule schedule : {BatchSchedule::kCgoPipe, BatchSchedule::kS3, BatchSchedule::kS4}) {
    const StepCosts costs = Costs(schedule);
    for (const int64_t parts : {1, 2, 4, 8, 16}) {
      for (const BatchSize& size :
           {BatchSize{64, 640, 64}, BatchSize{256, 25'600, 512}, BatchSize{32, 320'000, 6'400}}) {
        const MeasuredStep expected = Measured(parts, size, schedule);
        const StepForecast forecast = costs.Even(expected.list, size);
        EXPECT_NEAR(forecast.seconds, expected.times.seconds, 1e-6 * expected.times.seconds) << parts;
        for (size_t r = 0; r < kResources; ++r) EXPECT_NEAR(forecast.busy[r], expected.times.busy[r], 1e-6) << r;
      }
    }
  }
}

TEST(StepCosts, OfMicroBatchesThatDiffer) {
  const StepCosts costs = Costs(BatchSchedule::kCgoPipe);
  const std::vector<BatchSize> sizes = {{100, 5000, 100}, {4, 80'000, 1'300}};
  const TaskList list = List(2);
  const StepForecast expected =
      Forecast(list, [&](const Task& task) { return SecondsOf(task, 2, sizes[static_cast<size_t>(task.part)]); });
  EXPECT_NEAR(costs.Of(list, sizes).seconds, expected.seconds, 1e-6 * expected.seconds);
}

// Measured with one part in all three: a task has no time of its own.
TEST(StepCosts, OfOnePart) {
  const StepCosts costs(Measured(1, {64, 640}), Measured(1, {64, 640}), Measured(1, {64, 64'000}));
  const MeasuredStep expected = Measured(1, {64, 640});
  EXPECT_NEAR(costs.Even(expected.list, expected.size).seconds, expected.times.seconds, 1e-6);
}

}  // namespace
}  // namespace moestro::decode
