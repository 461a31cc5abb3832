#include "services/decode/throughput/pipeline.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/device/signals.h"

namespace moestro::decode {
namespace {

// Events serve for so long. A GPU's event counts seconds from its creation, in F32: a day later only to milliseconds.
constexpr double kEventSeconds = 60;

constexpr std::array<Resource, 3> kStreams = {Resource::kDevice, Resource::kToDevice, Resource::kToHost};

std::array<int64_t, kResources> CountTasks(const TaskList& list) {
  std::array<int64_t, kResources> counts = {};
  for (const Task& task : list.tasks) ++counts[static_cast<size_t>(ResourceOf(task.kind))];
  return counts;
}

}  // namespace

struct BatchPipeline::Step {
  Step(device::Device& device, const TaskList& its_list, TaskWork& its_work)
      : list(its_list), work(its_work), begin(device.Now()), signals(device, CountTasks(its_list)) {
    std::array<int64_t, kResources> counts = {};
    for (const Task& task : list.tasks) places.push_back(counts[static_cast<size_t>(ResourceOf(task.kind))]++);
  }

  const TaskList& list;
  TaskWork& work;
  const double begin;
  std::vector<int64_t> places;  // of each task on its resource
  device::RunSignals signals;   // a counter for each resource: tasks whose end is recorded, or of the host ended
  StepTimes times;              // the host's
};

absl::StatusOr<std::unique_ptr<BatchPipeline>> BatchPipeline::Create(device::Device& device) {
  std::unique_ptr<BatchPipeline> pipeline(new BatchPipeline(device));
  MOE_RETURN_IF_ERROR(pipeline->MakeStreams());
  return pipeline;
}

absl::Status BatchPipeline::MakeStreams() {
  events_.clear();
  MOE_ASSIGN_OR_RETURN(compute_, device_.NewStream("batch compute"));
  MOE_ASSIGN_OR_RETURN(to_device_, device::StagedStream::Create(device_, "batch load"));
  MOE_ASSIGN_OR_RETURN(to_host_, device_.NewStream("batch offload"));
  return absl::OkStatus();
}

absl::Status BatchPipeline::MakeEvents(size_t count) {
  if (device_.Now() - events_made_ > kEventSeconds) events_.clear();
  if (events_.empty()) events_made_ = device_.Now();
  while (events_.size() < count) {
    Events events;
    MOE_ASSIGN_OR_RETURN(events.begin, device_.NewEvent());
    MOE_ASSIGN_OR_RETURN(events.end, device_.NewEvent());
    events_.push_back(std::move(events));
  }
  return absl::OkStatus();
}

absl::Status BatchPipeline::Renew(const absl::Status& failure) {
  for (const Resource resource : kStreams) (void)StreamOf(resource).Synchronize();  // its status has been seen
  const absl::Status renewed = MakeStreams();
  if (renewed.ok()) return failure;
  return absl::UnavailableError(absl::StrFormat("%s; the device is lost: %s", failure.message(), renewed.message()));
}

device::Stream& BatchPipeline::StreamOf(Resource resource) {
  switch (resource) {
    case Resource::kToDevice:
      return *to_device_;
    case Resource::kToHost:
      return *to_host_;
    default:
      return *compute_;
  }
}

absl::Status BatchPipeline::Run(const TaskList& list, TaskWork& work, absl::FunctionRef<absl::Status()> interrupted,
                                StepTimes& times) {
  if (const absl::Status status = MakeEvents(list.tasks.size()); !status.ok()) return Renew(status);
  Step step(device_, list, work);
  const auto fail = [&](const absl::Status& status) {
    if (!status.ok()) step.signals.Fail(status);
  };
  std::vector<std::thread> threads;
  // A thread that cannot be started is a failure of the step, too, which ends the waits of the others.
  fail(CatchExceptions([&] {
    threads.reserve(kStreams.size());
    for (const Resource resource : kStreams) {
      threads.emplace_back([&, resource] {
        device_.AdvanceTo(step.begin);
        fail(CatchExceptions([&] { return RunStream(step, resource); }));
      });
    }
    return RunHost(step, interrupted);
  }));
  for (std::thread& thread : threads) thread.join();
  for (const Resource resource : kStreams) fail(StreamOf(resource).Synchronize());
  if (const absl::Status status = step.signals.status(); !status.ok()) return Renew(status);
  times = step.times;
  const absl::Status measured = Measure(list, times);
  return measured.ok() ? measured : Renew(measured);
}

absl::Status BatchPipeline::RunStream(Step& step, Resource resource) {
  device::Stream& stream = StreamOf(resource);
  for (size_t i = 0; i < step.list.tasks.size(); ++i) {
    const Task& task = step.list.tasks[i];
    if (ResourceOf(task.kind) != resource) continue;
    for (const int32_t wait : task.waits) {
      const auto w = static_cast<size_t>(wait);
      const Resource other = ResourceOf(step.list.tasks[w].kind);
      if (other == resource) continue;  // the stream keeps the order
      MOE_RETURN_IF_ERROR(step.signals.WaitFor(static_cast<size_t>(other), step.places[w]));
      if (other != Resource::kHost) MOE_RETURN_IF_ERROR(stream.WaitFor(*events_[w].end));
    }
    MOE_RETURN_IF_ERROR(stream.Record(*events_[i].begin));
    MOE_RETURN_IF_ERROR(step.work.Launch(task, stream));
    MOE_RETURN_IF_ERROR(stream.Record(*events_[i].end));
    step.signals.Add(static_cast<size_t>(resource));
  }
  return absl::OkStatus();
}

absl::Status BatchPipeline::RunHost(Step& step, absl::FunctionRef<absl::Status()> interrupted) {
  for (const Task& task : step.list.tasks) {
    if (ResourceOf(task.kind) != Resource::kHost) continue;
    MOE_RETURN_IF_ERROR(interrupted());
    for (const int32_t wait : task.waits) {
      const auto w = static_cast<size_t>(wait);
      const Resource other = ResourceOf(step.list.tasks[w].kind);
      if (other == Resource::kHost) continue;
      MOE_RETURN_IF_ERROR(step.signals.WaitFor(static_cast<size_t>(other), step.places[w], interrupted));
      MOE_RETURN_IF_ERROR(events_[w].end->Wait());
    }
    const double begin = device_.Now();
    MOE_RETURN_IF_ERROR(step.work.Do(task));
    const double seconds = device_.Now() - begin;
    step.times.busy[static_cast<size_t>(Resource::kHost)] += seconds;
    step.times.by_kind[static_cast<size_t>(task.kind)] += seconds;
    step.signals.Add(static_cast<size_t>(Resource::kHost));
  }
  return absl::OkStatus();
}

absl::Status BatchPipeline::Measure(const TaskList& list, StepTimes& times) {
  const double begin = device_.Now();
  times.seconds = 0;
  double first = begin, last = 0;
  for (size_t i = 0; i < list.tasks.size(); ++i) {
    const Resource resource = ResourceOf(list.tasks[i].kind);
    if (resource == Resource::kHost) continue;
    MOE_RETURN_IF_ERROR(events_[i].begin->Wait());
    MOE_RETURN_IF_ERROR(events_[i].end->Wait());
    const double from = events_[i].begin->Seconds(), to = events_[i].end->Seconds();
    times.busy[static_cast<size_t>(resource)] += to - from;
    times.by_kind[static_cast<size_t>(list.tasks[i].kind)] += to - from;
    first = std::min(first, from);
    last = std::max(last, to);
  }
  times.seconds = last - first;
  return absl::OkStatus();
}

}  // namespace moestro::decode
