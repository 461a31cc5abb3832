#include "services/prefill/stream/pipeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/device/signals.h"
#include "common/device/staging.h"

namespace moestro::prefill {
namespace {

using device::Device;
using device::Event;
using device::Memory;
using device::Stream;

// Steps that may be on the compute stream or waiting to be released: so many pairs of events there are. It bounds how
// long a cancelled run goes on.
constexpr int64_t kStepWindow = 64;

// Who tells whom how far it is (device::RunSignals).
enum Counter : size_t {
  kStaged,    // loader → model     stagings whose copies are on the load stream, their ON events recorded
  kLaunched,  // model → unloader   steps that are on the compute stream, their OFF events recorded
  kReleased,  // unloader → all     steps that are done, the memory of their modules free
};

// When something began and when it was done.
struct EventPair {
  std::unique_ptr<Event> begin;
  std::unique_ptr<Event> end;
};

absl::Status MakeEvents(Device& device, int64_t count, std::vector<EventPair>* events) {
  for (int64_t i = 0; i < count; ++i) {
    EventPair& pair = events->emplace_back();
    MOE_ASSIGN_OR_RETURN(pair.begin, device.NewEvent());
    MOE_ASSIGN_OR_RETURN(pair.end, device.NewEvent());
  }
  return absl::OkStatus();
}

class Pipeline {
 public:
  Pipeline(Device& device, const Schedule& schedule, engine::StepCompute& compute, PipelineReport& report)
      : device_(device),
        schedule_(schedule),
        compute_(compute),
        report_(report),
        signals_(device,
                 std::array{std::ssize(schedule.stagings), std::ssize(schedule.steps), std::ssize(schedule.steps)}) {}

  // Memory, events and streams. RESOURCE_EXHAUSTED if they do not fit.
  absl::Status Prepare() {
    MOE_ASSIGN_OR_RETURN(ring_, device_.Allocate(schedule_.ring_slots * schedule_.slot_bytes, "expert ring"));
    MOE_ASSIGN_OR_RETURN(dense_, device_.Allocate(schedule_.dense_bytes, "dense weights"));
    const int64_t stagings = std::min(schedule_.staging_window, std::ssize(schedule_.stagings));
    MOE_RETURN_IF_ERROR(MakeEvents(device_, stagings, &staging_events_));
    MOE_RETURN_IF_ERROR(MakeEvents(device_, kStepWindow, &step_events_));
    MOE_ASSIGN_OR_RETURN(load_stream_, device::StagedStream::Create(device_, "load"));
    MOE_ASSIGN_OR_RETURN(compute_stream_, device_.NewStream("compute"));
    MOE_ASSIGN_OR_RETURN(unload_stream_, device_.NewStream("unload"));
    return absl::OkStatus();
  }

  absl::Status Run(absl::FunctionRef<absl::Status()> interrupted, absl::FunctionRef<void(const Step& step)> on_released,
                   absl::FunctionRef<bool(const Step& next)> ends_before) {
    report_.begin = device_.Now();
    std::thread loader([this] { RunThread([this] { return Load(); }); });
    std::thread unloader([this] { RunThread([this] { return Unload(); }); });
    const absl::Status status = CatchExceptions([&] { return Compute(interrupted, on_released, ends_before); });
    if (!status.ok()) signals_.Fail(status);
    if (report_.ended_early) signals_.Fail(absl::CancelledError("the run has ended early"));  // the other threads, too
    loader.join();
    unloader.join();
    // What is still on a stream after a failure uses memory that is about to go.
    for (Stream* stream : std::array<Stream*, 3>{load_stream_.get(), compute_stream_.get(), unload_stream_.get()}) {
      if (const absl::Status drained = stream->Synchronize(); !drained.ok()) signals_.Fail(drained);
    }
    StreamCounters& counters = report_.counters;
    counters.runs = 1;
    counters.staged_bytes = load_stream_->staged_bytes();
    counters.pageable_bytes = load_stream_->pageable_bytes();
    counters.passes = schedule_.steps.empty() ? 0 : schedule_.steps.back().pass + 1;
    counters.wall_seconds = device_.Now() - report_.begin;
    counters.ring_slots = schedule_.ring_slots;
    counters.slot_wait_seconds = slot_wait_seconds_;
    counters.max_ring_occupancy = max_ring_occupancy_;
    return report_.ended_early ? status : signals_.status();
  }

 private:
  void RunThread(absl::FunctionRef<absl::Status()> work) {
    device_.AdvanceTo(report_.begin);
    if (const absl::Status status = CatchExceptions(work); !status.ok()) signals_.Fail(status);
  }

  EventPair& StagingEvents(int64_t i) { return staging_events_[i % schedule_.staging_window]; }
  EventPair& StepEvents(int64_t s) { return step_events_[s % kStepWindow]; }

  uint8_t* BaseOf(const Staging& staging) const {
    return (staging.module->kind == engine::ModuleKind::kExpert ? ring_ : dense_).data() + staging.offset;
  }

  // --- loader ---

  absl::Status Load() {
    for (int64_t i = 0; i < std::ssize(schedule_.stagings); ++i) {
      const Staging& staging = schedule_.stagings[i];
      MOE_RETURN_IF_ERROR(WaitForMemory(staging));
      if (staging.module->kind == engine::ModuleKind::kExpert) {
        max_ring_occupancy_ = std::max(max_ring_occupancy_, ++ring_occupancy_);
      }
      EventPair& events = StagingEvents(i);
      MOE_RETURN_IF_ERROR(load_stream_->Record(*events.begin));
      for (const engine::StagedRange& range : staging.module->image.ranges) {
        MOE_RETURN_IF_ERROR(load_stream_->CopyToDevice(BaseOf(staging) + range.offset, range.source, range.bytes));
      }
      MOE_RETURN_IF_ERROR(load_stream_->Record(*events.end));
      signals_.Add(kStaged);
    }
    return absl::OkStatus();
  }

  absl::Status WaitForMemory(const Staging& staging) {
    if (staging.after_step < 0) return signals_.status();
    const double begin = device_.Now();
    MOE_RETURN_IF_ERROR(signals_.WaitFor(kReleased, staging.after_step));
    const double end = device_.Now();
    slot_wait_seconds_ += end - begin;
    const engine::Module& module = *staging.module;
    if (end > begin) {
      report_.timeline.lanes[Timeline::kSlotWaits].push_back(
          {engine::ModuleName(module.kind), 0, module.layer, module.index, 0, begin, end});
    }
    return absl::OkStatus();
  }

  // --- model: the caller's thread ---

  absl::Status Compute(absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(const Step& step)> on_released,
                       absl::FunctionRef<bool(const Step& next)> ends_before) {
    int64_t reported = 0;
    const auto poll = [&] {
      const int64_t released = signals_.count(kReleased);
      while (reported < released) on_released(schedule_.steps[reported++]);
      return interrupted();
    };
    int64_t count = std::ssize(schedule_.steps);
    for (int64_t s = 0; s < count; ++s) {
      MOE_RETURN_IF_ERROR(poll());
      if (ends_before(schedule_.steps[s])) {
        report_.ended_early = true;
        count = s;
        break;
      }
      const int64_t former = std::max(s - kStepWindow, schedule_.steps[s].after_step);
      if (former >= 0) MOE_RETURN_IF_ERROR(signals_.WaitFor(kReleased, former, poll));
      const int64_t staged = schedule_.steps[s].staged;
      if (staged > 0) MOE_RETURN_IF_ERROR(signals_.WaitFor(kStaged, staged - 1, poll));
      MOE_RETURN_IF_ERROR(LaunchStep(s));
      signals_.Add(kLaunched);
    }
    if (count > 0) MOE_RETURN_IF_ERROR(signals_.WaitFor(kReleased, count - 1, poll));
    while (reported < count) on_released(schedule_.steps[reported++]);
    return absl::OkStatus();
  }

  absl::Status LaunchStep(int64_t s) {
    const Step& step = schedule_.steps[s];
    modules_.clear();
    for (int64_t i = step.uses.begin; i < step.uses.end; ++i) {
      const Staging& staging = schedule_.stagings[i];
      MOE_RETURN_IF_ERROR(compute_stream_->WaitFor(*StagingEvents(i).end));
      modules_.push_back({staging.module, BaseOf(staging)});
    }
    MOE_RETURN_IF_ERROR(compute_stream_->Record(*StepEvents(s).begin));
    MOE_RETURN_IF_ERROR(compute_.Launch(step, modules_, *compute_stream_, signals_.stopped()));
    return compute_stream_->Record(*StepEvents(s).end);
  }

  // --- unloader ---

  absl::Status Unload() {
    double last_end = report_.begin;  // of the step before
    for (int64_t s = 0; s < std::ssize(schedule_.steps); ++s) {
      const Step& step = schedule_.steps[s];
      MOE_RETURN_IF_ERROR(signals_.WaitFor(kLaunched, s));
      MOE_RETURN_IF_ERROR(StepEvents(s).end->Wait());
      if (step.kind == engine::StepKind::kAttention) {
        MOE_RETURN_IF_ERROR(compute_.Store(step, *unload_stream_));
        MOE_RETURN_IF_ERROR(unload_stream_->Synchronize());
      }
      MOE_RETURN_IF_ERROR(Account(s, last_end));
      last_end = StepEvents(s).end->Seconds();
      signals_.Add(kReleased);
    }
    return absl::OkStatus();
  }

  absl::Status Account(int64_t s, double last_end) {
    const Step& step = schedule_.steps[s];
    StreamCounters& counters = report_.counters;
    auto& lanes = report_.timeline.lanes;
    double arrived = last_end;  // the last of its weights
    for (int64_t i = step.uses.begin; i < step.uses.end; ++i) {
      MOE_RETURN_IF_ERROR(StagingEvents(i).end->Wait());
      arrived = std::max(arrived, StagingEvents(i).end->Seconds());
    }
    for (int64_t i = step.releases.begin; i < step.releases.end; ++i) {
      MOE_RETURN_IF_ERROR(StagingEvents(i).begin->Wait());
      const engine::Module& module = *schedule_.stagings[i].module;
      int64_t bytes = 0;
      for (const engine::StagedRange& range : module.image.ranges) bytes += range.bytes;
      const double begin = StagingEvents(i).begin->Seconds();
      const double end = StagingEvents(i).end->Seconds();
      lanes[Timeline::kLoads].push_back(
          {engine::ModuleName(module.kind), step.pass, module.layer, module.index, bytes, begin, end});
      counters.streamed_bytes += bytes;
      counters.load_seconds += end - begin;
      if (module.kind == engine::ModuleKind::kExpert) --ring_occupancy_;
    }
    MOE_RETURN_IF_ERROR(StepEvents(s).begin->Wait());
    const double begin = StepEvents(s).begin->Seconds();
    const double end = StepEvents(s).end->Seconds();
    const int64_t index = step.uses.size() > 0 ? schedule_.stagings[step.uses.begin].module->index : 0;
    lanes[Timeline::kModel].push_back({engine::StepName(step.kind), step.pass, step.layer, index, 0, begin, end});
    counters.compute_seconds += end - begin;
    if (arrived > last_end) {
      lanes[Timeline::kStalls].push_back(
          {engine::StepName(step.kind), step.pass, step.layer, index, 0, last_end, arrived});
      counters.stall_seconds += arrived - last_end;
    }
    const double released = device_.Now();
    if (step.releases.size() > 0) {
      lanes[Timeline::kUnloads].push_back(
          {engine::StepName(step.kind), step.pass, step.layer, index, 0, end, released});
    }
    return absl::OkStatus();
  }

  Device& device_;
  const Schedule& schedule_;
  engine::StepCompute& compute_;
  PipelineReport& report_;
  device::RunSignals signals_;

  Memory ring_;
  Memory dense_;
  std::vector<EventPair> staging_events_;      // end: ON
  std::vector<EventPair> step_events_;         // end: OFF
  std::vector<engine::StagedModule> modules_;  // of the step that is being launched
  std::atomic<int64_t> ring_occupancy_ = 0;
  int64_t max_ring_occupancy_ = 0;  // the loader's
  double slot_wait_seconds_ = 0;    // the loader's

  // Last, so that they end before what their work uses.
  std::unique_ptr<device::StagedStream> load_stream_;
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> unload_stream_;
};

}  // namespace

absl::Status RunPipeline(Device& device, const Schedule& schedule, engine::StepCompute& compute,
                         absl::FunctionRef<absl::Status()> interrupted,
                         absl::FunctionRef<void(const Step& step)> on_released, PipelineReport* report,
                         absl::FunctionRef<bool(const Step& next)> ends_before) {
  Pipeline pipeline(device, schedule, compute, *report);
  MOE_RETURN_IF_ERROR(pipeline.Prepare());
  return pipeline.Run(interrupted, on_released, ends_before);
}

}  // namespace moestro::prefill
