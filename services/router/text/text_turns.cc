#include "services/router/text/text_turns.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/status.h"

namespace moestro::router {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{20};

}  // namespace

int TextTurns::OfMachine() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 4)); }

TextTurns::Turn::Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}

TextTurns::Turn::~Turn() {
  if (turns_ == nullptr) return;
  const MutexLock lock(turns_->mutex_);
  ++turns_->free_;
  turns_->changed_.notify_all();
}

absl::StatusOr<TextTurns::Turn> TextTurns::Take(const std::function<absl::Status()>& check) {
  MutexLock lock(mutex_);
  const uint64_t ticket = *waiting_.insert(++last_ticket_).first;
  absl::Status status = absl::OkStatus();
  while (free_ == 0 || *waiting_.begin() != ticket) {
    changed_.wait_for(lock, kCheckInterval);
    lock.unlock();
    status = check();
    lock.lock();
    if (!status.ok()) break;
  }
  waiting_.erase(ticket);
  changed_.notify_all();  // The next waiter may find a turn free.
  MOE_RETURN_IF_ERROR(status);
  --free_;
  return Turn(*this);
}

}  // namespace moestro::router
