// The five schedules, and the check that finds what is wrong with a list.
#include "services/decode/throughput/task_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace moestro::decode {
namespace {

using enum BatchSchedule;
using testing::HasSubstr;

std::vector<StepShape> Shapes(BatchSchedule schedule) {
  std::vector<StepShape> shapes;
  for (const int64_t parts : {1, 2, 3, 7}) {
    if (schedule == kWholeLayer && parts > 1) break;
    for (const int64_t layers : {1, 2, 5}) {
      std::vector<int64_t> all(static_cast<size_t>(layers));
      std::iota(all.begin(), all.end(), 0);
      shapes.push_back({.layers = layers, .streamed = {}, .micro_batches = parts});
      shapes.push_back({.layers = layers, .streamed = all, .micro_batches = parts});
      shapes.push_back({.layers = layers, .streamed = all, .micro_batches = parts, .first_is_there = true});
      if (layers == 5) shapes.push_back({.layers = 5, .streamed = {1, 3, 4}, .micro_batches = parts});
      if (layers == 5) {
        shapes.push_back({.layers = 5, .streamed = {2}, .micro_batches = parts, .first_is_there = true});
      }
    }
  }
  return shapes;
}

std::string Describe(BatchSchedule schedule, const StepShape& shape) {
  return absl::StrCat(WordOf(kBatchScheduleWords, schedule), ", layers ", shape.layers, ", streamed ",
                      shape.streamed.size(), ", parts ", shape.micro_batches, ", first there ", shape.first_is_there);
}

class TaskListTest : public testing::TestWithParam<BatchSchedule> {};

TEST_P(TaskListTest, PassesTheCheckInEveryShape) {
  for (const StepShape& shape : Shapes(GetParam())) {
    const absl::Status status = CheckTasks(ListTasks(GetParam(), shape));
    EXPECT_TRUE(status.ok()) << Describe(GetParam(), shape) << ": " << status;
  }
}

// A wait may be lost only where others imply it: with few layers or micro-batches, and for a layer that comes as a
// whole, behind outputs that need what it waits for.
TEST_P(TaskListTest, TheCheckFindsALostWait) {
  std::set<TaskKind> found, waiting;
  for (const StepShape& shape : Shapes(GetParam())) {
    const TaskList list = ListTasks(GetParam(), shape);
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      for (size_t w = 0; w < list.tasks[i].waits.size(); ++w) {
        TaskList without = list;
        without.tasks[i].waits.erase(without.tasks[i].waits.begin() + static_cast<int64_t>(w));
        waiting.insert(list.tasks[i].kind);
        if (!CheckTasks(without).ok()) found.insert(list.tasks[i].kind);
      }
    }
  }
  if (GetParam() == kS2 || GetParam() == kS3) waiting.erase(TaskKind::kLoadPage);
  EXPECT_EQ(found, waiting);
}

TEST_P(TaskListTest, TheCheckFindsTasksThatAreMissingOrTwiceThere) {
  for (const StepShape& shape : Shapes(GetParam())) {
    const TaskList list = ListTasks(GetParam(), shape);
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      TaskList without = list;
      // Later tasks move up; whoever waited for this one waits for its predecessor, which keeps the list well-formed.
      without.tasks.erase(without.tasks.begin() + static_cast<int64_t>(i));
      for (Task& task : without.tasks) {
        std::erase(task.waits, static_cast<int32_t>(i));
        for (int32_t& wait : task.waits) wait -= wait > static_cast<int32_t>(i) ? 1 : 0;
      }
      ASSERT_THAT(CheckTasks(without).message(), HasSubstr("missing")) << NameOf(list.tasks[i]);
      TaskList twice = list;
      twice.tasks.push_back(list.tasks[i]);
      ASSERT_THAT(CheckTasks(twice).message(), HasSubstr("twice")) << NameOf(list.tasks[i]);
    }
  }
}

// Two neighbours of one resource change places. Where no result depends on their order, both lists pass.
TEST_P(TaskListTest, TheCheckFindsTasksThatChangedPlaces) {
  std::set<std::pair<TaskKind, TaskKind>> found;
  for (const StepShape& shape : Shapes(GetParam())) {
    const TaskList list = ListTasks(GetParam(), shape);
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      for (size_t j = i + 1; j < list.tasks.size(); ++j) {
        if (ResourceOf(list.tasks[j].kind) != ResourceOf(list.tasks[i].kind)) continue;
        TaskList swapped = list;
        std::swap(swapped.tasks[i], swapped.tasks[j]);
        for (Task& task : swapped.tasks) {
          for (int32_t& wait : task.waits) {
            wait = wait == static_cast<int32_t>(i)   ? static_cast<int32_t>(j)
                   : wait == static_cast<int32_t>(j) ? static_cast<int32_t>(i)
                                                     : wait;
          }
        }
        if (!CheckTasks(swapped).ok()) found.insert({list.tasks[i].kind, list.tasks[j].kind});
        break;  // the next one of the resource
      }
    }
  }
  using enum TaskKind;
  const auto finds = [&](TaskKind first, TaskKind then) { EXPECT_TRUE(found.contains({first, then})); };
  finds(kPostAttention, kPreAttention);
  if (AttendsOnDevice(GetParam())) {
    finds(kPreAttention, kAttend);
    finds(kAttend, kPostAttention);
    finds(kLoadCache, kLoadCache);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, TaskListTest, testing::Values(kCgoPipe, kS2, kS3, kS4, kWholeLayer),
                         [](const auto& schedule) {
                           std::string name(WordOf(kBatchScheduleWords, schedule.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(TaskList, TheCheckNamesWhatMayGoWrong) {
  TaskList list = ListTasks(kCgoPipe, {.layers = 2, .streamed = {0, 1}, .micro_batches = 2});
  const auto at = [&](TaskKind kind, int64_t layer, int64_t part) -> Task& {
    return *std::ranges::find_if(list.tasks,
                                 [&](const Task& t) { return t.kind == kind && t.layer == layer && t.part == part; });
  };
  at(TaskKind::kHostAttention, 1, 0).waits.clear();
  EXPECT_EQ(CheckTasks(list).message(),
            "attention on the host of layer 1, micro-batch 0 may begin before the end of offloading of layer 1, "
            "micro-batch 0");
  list.tasks.front().waits = {5};
  EXPECT_THAT(CheckTasks(list).message(), HasSubstr("waits for a task that is not before it"));
  list.tasks.front().waits = {};
  list.tasks.front().layer = 3;
  EXPECT_THAT(CheckTasks(list).message(), HasSubstr("no such layer"));
}

// With CGOPipe a micro-batch's outputs wait for one page of weights at most, with the others for a whole layer.
TEST(TaskList, PagesBetweenTheOutputsOfMicroBatches) {
  for (const auto& [schedule, most] : {std::pair(kCgoPipe, 1), std::pair(kS2, 4), std::pair(kS3, 4)}) {
    const TaskList list =
        ListTasks(schedule, {.layers = 3, .streamed = {0, 1, 2}, .micro_batches = 4, .first_is_there = true});
    int64_t together = 0, longest = 0;
    for (const Task& task : list.tasks) {
      if (task.kind == TaskKind::kLoadOutputs) together = 0;
      if (task.kind == TaskKind::kLoadPage) longest = std::max(longest, ++together);
    }
    EXPECT_EQ(longest, most) << WordOf(kBatchScheduleWords, schedule);
  }
}

double UnitSeconds(const Task& task) {
  switch (task.kind) {
    case TaskKind::kLoadPage:
      return 1.0;
    case TaskKind::kLoadCache:
      return 1.5;
    case TaskKind::kHostAttention:
      return 0.8;
    case TaskKind::kPostAttention:
      return 0.6;
    default:
      return 0.1;
  }
}

TEST(TaskList, ForecastsTheOrderOfThePaper) {
  const StepShape shape{.layers = 6, .streamed = {0, 1, 2, 3, 4, 5}, .micro_batches = 4, .first_is_there = true};
  const auto seconds = [&](BatchSchedule schedule) {
    return Forecast(ListTasks(schedule, shape), UnitSeconds).seconds;
  };
  EXPECT_LT(seconds(kCgoPipe), seconds(kS2));
  EXPECT_LT(seconds(kS2), seconds(kS3));
  EXPECT_LT(seconds(kCgoPipe), seconds(kS4));
  // 24 pages and 24 outputs: the link is always busy but at the beginning and the end.
  const StepForecast best = Forecast(ListTasks(kCgoPipe, shape), UnitSeconds);
  EXPECT_NEAR(best.busy[static_cast<size_t>(Resource::kToDevice)], 24 * 1.1, 1e-9);
  EXPECT_LT(best.seconds, 24 * 1.1 + 3);
}

TEST(TaskList, ForecastsAListByHand) {
  const TaskList list = ListTasks(kS3, {.layers = 1, .streamed = {0}, .micro_batches = 1});
  // Page; pre-attention, offloading, host; outputs; the next step's page, beside post-attention.
  const StepForecast forecast = Forecast(list, UnitSeconds);
  EXPECT_NEAR(forecast.seconds, 0.1 + 0.1 + 0.8 + 0.1 + 1.0, 1e-9);
  EXPECT_NEAR(forecast.busy[static_cast<size_t>(Resource::kDevice)], 0.7, 1e-9);
  EXPECT_NEAR(forecast.busy[static_cast<size_t>(Resource::kToDevice)], 2.1, 1e-9);
}

}  // namespace
}  // namespace moestro::decode
