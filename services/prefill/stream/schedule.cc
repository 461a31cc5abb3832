#include "services/prefill/stream/schedule.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace moestro::prefill {

using engine::Module;
using engine::StepKind;

namespace {

// Beyond the experts of a layer, how many modules may be staged at once.
constexpr int64_t kDenseWindow = 64;

// Launches at each end of a layer's experts that are two, one for the rank's own rows and one for the others'. Two take
// longer than one, so there are no more of them than hide an exchange: of DeepSeek-V3's 128 experts on each of two
// GPUs, 16 a launch, these are all.
constexpr int64_t kMostHeld = 4;

class Scheduler {
 public:
  Scheduler(const std::vector<Module>& modules, const ScheduleOptions& options)
      : modules_(modules),
        options_(options),
        together_(ExpertsTogether(options.ring_slots, options.max_experts_together)) {
    schedule_.slot_bytes = SlotBytes(modules);
    schedule_.ring_slots = options.ring_slots;
    schedule_.dense_bytes = options.dense_bytes;
    int64_t experts = 0;
    for (const Module& module : modules) experts = std::max(experts, module.index + 1);
    schedule_.staging_window = experts + kDenseWindow;
  }

  absl::StatusOr<Schedule> Make() {
    for (int64_t pass = 0; pass < options_.passes; ++pass) AddPass(pass);
    PlaceExperts();
    if (absl::Status status = PlaceDense(); !status.ok()) return status;
    LimitWindow();
    OrderAttention();
    Verify();
    return std::move(schedule_);
  }

 private:
  void AddPass(int64_t pass) {
    AddStep({{StepKind::kEmbed, pass, 0}});
    int64_t router = -1;
    for (size_t m = 0; m < modules_.size(); ++m) {
      const Module& module = modules_[m];
      const bool ends_layer = m + 1 == modules_.size() || modules_[m + 1].layer != module.layer;
      switch (module.kind) {
        case engine::ModuleKind::kAttention:
          AddDense(StepKind::kAttention, pass, module, false);
          break;
        case engine::ModuleKind::kDense:
          AddDense(StepKind::kDense, pass, module, true);
          break;
        case engine::ModuleKind::kRouter:
          router = Stage(module);
          AddStep({{StepKind::kRoute, pass, module.layer}, {router, router + 1}});
          groups_.clear();
          if (ends_layer) {
            if (options_.exchanges) AddStep({{StepKind::kDispatch, pass, module.layer}});
            AddSharedExpert(pass, module.layer, router);
          }
          break;
        case engine::ModuleKind::kExpert: {
          const int64_t staged = Stage(module) - router;  // experts of the layer, so far
          if (ends_layer || staged % together_ == 0) {
            const int64_t end = router + 1 + staged;
            groups_.push_back({end - 1 - (staged - 1) % together_, end});
            AddExperts(pass, module.layer, CeilDiv(ExpertsAfter(m) + staged, together_));
          }
          if (ends_layer) AddSharedExpert(pass, module.layer, router);
          break;
        }
        case engine::ModuleKind::kHead:
          if (pass + 1 == options_.passes) AddDense(StepKind::kHead, pass, module, false);
          break;
      }
    }
    schedule_.steps.back().ends_pass = true;
  }

  int64_t Stage(const Module& module) {
    schedule_.stagings.push_back({.module = &module});
    return std::ssize(schedule_.stagings) - 1;
  }

  void AddStep(Step step) {
    step.staged = std::ssize(schedule_.stagings);
    for (int64_t i = step.releases.begin; i < step.releases.end; ++i) {
      schedule_.stagings[i].released_by = std::ssize(schedule_.steps);
    }
    schedule_.steps.push_back(step);
  }

  void AddDense(StepKind kind, int64_t pass, const Module& module, bool ends_layer) {
    const int64_t i = Stage(module);
    AddStep({{kind, pass, module.layer}, {i, i + 1}, {i, i + 1}, ends_layer});
  }

  // Experts of the layer that follow module m.
  int64_t ExpertsAfter(size_t m) const {
    int64_t experts = 0;
    while (++m < modules_.size() && modules_[m].kind == engine::ModuleKind::kExpert) ++experts;
    return experts;
  }

  // The group of experts that has been staged, the latest of groups_, of `count` in the layer.
  void AddExperts(int64_t pass, int64_t layer, int64_t count) {
    const auto add = [&](IndexRange experts, engine::WhoseRows rows, bool releases) {
      AddStep({{StepKind::kExperts, pass, layer, rows}, experts, releases ? experts : IndexRange{}});
    };
    if (!options_.exchanges) return add(groups_.back(), engine::WhoseRows::kAll, true);
    const int64_t held = std::clamp<int64_t>(options_.ring_slots / 2 / together_, 1, kMostHeld);
    const int64_t first = std::max<int64_t>(1, std::min(held, count / 2));
    const int64_t last = std::min(held, count - first);
    const int64_t done = std::ssize(groups_);
    if (done <= first) {
      add(groups_.back(), engine::WhoseRows::kOwn, false);
      if (done < first) return;
      AddStep({{StepKind::kDispatch, pass, layer}});
      for (const IndexRange& experts : groups_) add(experts, engine::WhoseRows::kOthers, true);
    } else if (done <= count - last) {
      add(groups_.back(), engine::WhoseRows::kAll, true);
    } else {
      add(groups_.back(), engine::WhoseRows::kOthers, false);
      if (done < count) return;
      for (int64_t g = count - last; g < count; ++g) add(groups_[g], engine::WhoseRows::kOwn, true);
    }
  }

  // After all experts of the layer.
  void AddSharedExpert(int64_t pass, int64_t layer, int64_t router) {
    const IndexRange own{router, router + 1};
    AddStep(
        {{StepKind::kSharedExpert, pass, layer}, own, options_.exchanges ? IndexRange{} : own, !options_.exchanges});
    if (options_.exchanges) AddStep({{StepKind::kCombine, pass, layer}, own, own, true});
  }

  // Expert n of the run takes slot n mod slots when expert n - slots has been released.
  void PlaceExperts() {
    std::deque<int64_t> in_ring;  // stagings
    int64_t next_slot = 0;
    for (size_t i = 0; i < schedule_.stagings.size(); ++i) {
      Staging& staging = schedule_.stagings[i];
      if (staging.module->kind != engine::ModuleKind::kExpert) continue;
      staging.offset = next_slot * schedule_.slot_bytes;
      next_slot = (next_slot + 1) % schedule_.ring_slots;
      if (std::ssize(in_ring) == schedule_.ring_slots) {
        staging.after_step = schedule_.stagings[in_ring.front()].released_by;
        in_ring.pop_front();
      }
      in_ring.push_back(static_cast<int64_t>(i));
    }
  }

  // A ring of bytes: modules lie one behind the other and are released in the order in which they were staged.
  absl::Status PlaceDense() {
    std::deque<int64_t> staged;
    int64_t next = 0;  // offset
    for (size_t i = 0; i < schedule_.stagings.size(); ++i) {
      Staging& staging = schedule_.stagings[i];
      if (staging.module->kind == engine::ModuleKind::kExpert) continue;
      const int64_t bytes = staging.module->image.bytes;
      if (bytes > options_.dense_bytes) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "%s of layer %d takes %d bytes, more than the %d that dense weights may take on the device",
            engine::ModuleName(staging.module->kind), staging.module->layer, bytes, options_.dense_bytes));
      }
      if (next + bytes > options_.dense_bytes) next = 0;
      const auto overlaps = [&](int64_t other) {
        const Staging& o = schedule_.stagings[other];
        return o.offset < next + bytes && next < o.offset + o.module->image.bytes;
      };
      // What is in the way goes, and what was staged before it.
      const auto last = std::find_if(staged.rbegin(), staged.rend(), overlaps);
      for (int64_t left = staged.rend() - last; left > 0; --left) {
        staging.after_step = std::max(staging.after_step, schedule_.stagings[staged.front()].released_by);
        staged.pop_front();
      }
      staging.offset = next;
      next += bytes;
      staged.push_back(static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  }

  void LimitWindow() {
    auto& stagings = schedule_.stagings;
    for (size_t i = static_cast<size_t>(schedule_.staging_window); i < stagings.size(); ++i) {
      const int64_t former = stagings[i - static_cast<size_t>(schedule_.staging_window)].released_by;
      stagings[i].after_step = std::max(stagings[i].after_step, former);
    }
  }

  // A layer's attention overwrites the KV of kKvBuffers layers before, and reads what the pass before left for it.
  void OrderAttention() {
    std::vector<int64_t> attention;
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (schedule_.steps[s].kind == StepKind::kAttention) attention.push_back(static_cast<int64_t>(s));
    }
    const int64_t layers = std::ssize(attention) / options_.passes;
    for (int64_t n = 0; n < std::ssize(attention); ++n) {
      const int64_t former = n - std::min(engine::kKvBuffers, layers);
      if (former >= 0) schedule_.steps[attention[n]].after_step = attention[former];
    }
  }

  // No deadlock: what a staging waits for needs earlier stagings only, what a step waits for is an earlier step.
  void Verify() const {
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      MOE_CHECK(schedule_.steps[s].after_step < static_cast<int64_t>(s));
    }
    for (size_t i = 0; i < schedule_.stagings.size(); ++i) {
      const int64_t after = schedule_.stagings[i].after_step;
      MOE_CHECK(schedule_.stagings[i].released_by >= 0);
      MOE_CHECK(after < 0 || schedule_.steps[after].staged <= static_cast<int64_t>(i));
    }
  }

  const std::vector<Module>& modules_;
  const ScheduleOptions options_;
  const int64_t together_;
  std::vector<IndexRange> groups_;  // of the layer, so far: stagings of experts that are launched together
  Schedule schedule_;
};

}  // namespace

int64_t ExpertsTogether(int64_t ring_slots, int64_t max_experts_together) {
  return std::clamp<int64_t>(ring_slots / 4, 1, max_experts_together);
}

int64_t SlotBytes(const std::vector<Module>& modules) {
  int64_t bytes = 0;
  for (const Module& module : modules) {
    if (module.kind == engine::ModuleKind::kExpert) bytes = std::max(bytes, module.image.bytes);
  }
  return bytes;
}

absl::StatusOr<Schedule> MakeSchedule(const std::vector<Module>& modules, const ScheduleOptions& options) {
  MOE_CHECK(options.ring_slots >= 2 && options.passes >= 1);
  return Scheduler(modules, options).Make();
}

}  // namespace moestro::prefill
