// A step of a batch whose experts do not fit the device, as a list of tasks: what each resource does, in which order,
// and what each task waits for ("MoE-Lightning", section 4.1, Algorithm 1 and Fig. 6). Pure: no thread, no device.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/process/choice.h"

namespace moestro::decode {

// How device, host and link take turns. All but CGOPipe are what other systems do.
enum class BatchSchedule {
  // The host attends two micro-batches ahead of the device. A page of the next layer's weights, as many as there are
  // micro-batches, lies between the outputs of one micro-batch and those of the next.
  kCgoPipe,
  kS2,          // as CGOPipe, but a layer's weights come as a whole (FastDecode, which streams no weights)
  kS3,          // as S2, but the host attends only when the device waits for it (FlexGen with attention on the host)
  kS4,          // the device attends; the cache of the next micro-batch comes meanwhile (FlexGen)
  kWholeLayer,  // as S4 with a single micro-batch (DeepSpeed)
};
inline constexpr std::array<Choice<BatchSchedule>, 5> kBatchScheduleWords = {
    {{"cgopipe", BatchSchedule::kCgoPipe},
     {"s2", BatchSchedule::kS2},
     {"s3", BatchSchedule::kS3},
     {"s4", BatchSchedule::kS4},
     {"whole-layer", BatchSchedule::kWholeLayer}}};
constexpr bool AttendsOnDevice(BatchSchedule schedule) {
  return schedule == BatchSchedule::kS4 || schedule == BatchSchedule::kWholeLayer;
}

// Each does its tasks one by one, in the order of the list.
enum class Resource { kDevice, kHost, kToDevice, kToHost };
inline constexpr size_t kResources = 4;

enum class TaskKind {
  kPreAttention,   // device: norm, queries, entries of the cache
  kAttend,         // device: attention, where it is the device's
  kPostAttention,  // device: output projection, router, experts
  kHostAttention,  // host: stores the entries, attends
  kStoreEntries,   // host: stores the entries, where the device attends
  kLoadPage,       // to the device: a page of a layer's weights
  kLoadCache,      // to the device: the cache of a layer
  kLoadOutputs,    // to the device: what the host's attention gives
  kOffload,        // to the host: queries and entries, or entries alone
};
inline constexpr size_t kTaskKinds = 9;
Resource ResourceOf(TaskKind kind);

struct Task {
  TaskKind kind = TaskKind::kPreAttention;
  int64_t layer = 0;           // of weights for the next step: the number of layers
  int64_t part = 0;            // micro-batch; of kLoadPage: page
  std::vector<int32_t> waits;  // tasks of the list, all of them earlier, that end before this one begins
};

struct StepShape {
  int64_t layers = 0;
  std::vector<int64_t> streamed;  // layers whose weights come in pages, ascending; they share two places in turn
  int64_t micro_batches = 1;
  bool first_is_there = false;  // the first streamed layer's weights, which the last step has loaded
};

struct TaskList {
  StepShape shape;
  bool attends_on_device = false;
  std::vector<Task> tasks;
};

// kWholeLayer REQUIRES one micro-batch. The last pages are the first streamed layer's, for the next step.
TaskList ListTasks(BatchSchedule schedule, const StepShape& shape);

// INVALID_ARGUMENT names the first fault: a task is missing or there twice; one waits for itself or a later one, so
// that the list could hang; one may begin before another whose result it needs has ended; weights or a cache may come
// to a place that is still used.
absl::Status CheckTasks(const TaskList& list);

// Seconds of the step, and those in which each resource works, if each task takes what `seconds` says.
struct StepForecast {
  double seconds = 0;
  std::array<double, kResources> busy = {};
};
StepForecast Forecast(const TaskList& list, absl::FunctionRef<double(const Task& task)> seconds);

// "post-attention of layer 3, micro-batch 2"
std::string NameOf(const Task& task);

}  // namespace moestro::decode
