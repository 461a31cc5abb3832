// Runs a step's tasks on a device and the host: a thread for each resource.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/staging.h"
#include "services/decode/throughput/task_list.h"

namespace moestro::decode {

// What the tasks are.
class TaskWork {
 public:
  virtual ~TaskWork() = default;
  // Puts the work of a device's or a link's task on its stream. One thread for each resource calls.
  virtual absl::Status Launch(const Task& task, device::Stream& stream) = 0;
  // Does a host's task.
  virtual absl::Status Do(const Task& task) = 0;
};

struct StepTimes {
  double seconds = 0;
  std::array<double, kResources> busy = {};     // seconds in which each resource worked
  std::array<double, kTaskKinds> by_kind = {};  // the same of each kind of task
};

class BatchPipeline {
 public:
  // The device must outlive it.
  static absl::StatusOr<std::unique_ptr<BatchPipeline>> Create(device::Device& device);

  // Does all tasks of a list that CheckTasks accepts, and waits for them. Calls `interrupted` before each of the host's
  // and while what it waits for is not on a stream yet; its error, or the first other one, ends the step. UNAVAILABLE:
  // the device is lost for good.
  absl::Status Run(const TaskList& list, TaskWork& work, absl::FunctionRef<absl::Status()> interrupted,
                   StepTimes& times);

  // Streams between steps: of the device, and of copies to it.
  device::Stream& stream() { return *compute_; }
  device::Stream& load_stream() { return *to_device_; }
  // After a failure on stream(): as Run, what the failure is to the caller.
  absl::Status Renew(const absl::Status& failure);

 private:
  // When a task that is on a stream began and ended.
  struct Events {
    std::unique_ptr<device::Event> begin;
    std::unique_ptr<device::Event> end;
  };
  struct Step;

  explicit BatchPipeline(device::Device& device) : device_(device) {}
  absl::Status MakeStreams();
  absl::Status MakeEvents(size_t count);
  device::Stream& StreamOf(Resource resource);
  absl::Status RunStream(Step& step, Resource resource);
  absl::Status RunHost(Step& step, absl::FunctionRef<absl::Status()> interrupted);
  absl::Status Measure(const TaskList& list, StepTimes& times);

  device::Device& device_;
  std::vector<Events> events_;  // of the list's tasks
  double events_made_ = 0;      // when the first of them was made
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<device::StagedStream> to_device_;
  std::unique_ptr<device::Stream> to_host_;
};

}  // namespace moestro::decode
