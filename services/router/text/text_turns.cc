#include "services/router/text/text_turns.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/platform/cgroup_cpu.h"

namespace moestro::router {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{20};

enum Which : size_t { kSmall = 0, kLarge = 1 };

bool IsRealTime(int policy) { return policy == SCHED_RR || policy == SCHED_FIFO; }

// Of the calling thread.
void SetScheduling(int policy, int priority) {
  const sched_param param{.sched_priority = priority};
  sched_setscheduler(0, policy, &param);
}

}  // namespace

int TextTurns::OfMachine() { return std::max(1, UsableCpus() / 4); }

TextTurns::Turn::Turn(TextTurns& turns, size_t line)
    : turns_(&turns), line_(line), policy_(line == kLarge ? sched_getscheduler(0) : SCHED_OTHER) {
  if (!IsRealTime(policy_)) return;
  sched_param param{};
  sched_getparam(0, &param);
  priority_ = param.sched_priority;
  SetScheduling(SCHED_OTHER, 0);
}

TextTurns::Turn::Turn(Turn&& other) noexcept
    : turns_(std::exchange(other.turns_, nullptr)),
      line_(other.line_),
      policy_(other.policy_),
      priority_(other.priority_) {}

TextTurns::Turn::~Turn() {
  if (turns_ == nullptr) return;
  if (IsRealTime(policy_)) SetScheduling(policy_, priority_);
  const MutexLock lock(turns_->mutex_);
  ++turns_->lines_[line_].free;
  turns_->changed_[line_].notify_all();
}

absl::StatusOr<TextTurns::Turn> TextTurns::Take(size_t bytes, const std::function<absl::Status()>& check) {
  const size_t which = bytes <= kMostSmallBytes ? kSmall : kLarge;
  MutexLock lock(mutex_);
  Line& line = lines_[which];
  const uint64_t ticket = *line.waiting.insert(++last_ticket_).first;
  absl::Status status = absl::OkStatus();
  while (line.free == 0 || *line.waiting.begin() != ticket) {
    changed_[which].wait_for(lock, kCheckInterval);
    lock.unlock();
    status = check();
    lock.lock();
    if (!status.ok()) break;
  }
  line.waiting.erase(ticket);
  if (!line.waiting.empty()) changed_[which].notify_all();  // The next waiter may find a turn free.
  MOE_RETURN_IF_ERROR(status);
  --line.free;
  return Turn(*this, which);
}

}  // namespace moestro::router
