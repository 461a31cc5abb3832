#include "services/router/admission/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace moestro::router {

AdmissionQueue::Place::Place(Place&& other) noexcept
    : queue_(std::exchange(other.queue_, nullptr)), arrival_(other.arrival_) {}

AdmissionQueue::Place::~Place() {
  if (queue_ == nullptr) return;
  MutexLock lock(queue_->mutex_);
  queue_->waiting_.erase(arrival_);
}

bool AdmissionQueue::Place::IsFirst() const {
  MutexLock lock(queue_->mutex_);
  return *queue_->waiting_.begin() == arrival_;
}

uint64_t AdmissionQueue::NextArrival() {
  MutexLock lock(mutex_);
  return ++last_arrival_;
}

absl::StatusOr<AdmissionQueue::Place> AdmissionQueue::Enter(uint64_t arrival) {
  MutexLock lock(mutex_);
  if (waiting_.size() >= limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue full: ", waiting_.size(), " requests are waiting (--queue-limit); try again later"));
  }
  MOE_CHECK(waiting_.insert(arrival).second);
  return Place(*this, arrival);
}

AdmissionQueue::Place AdmissionQueue::EnterAgain(uint64_t arrival) {
  MutexLock lock(mutex_);
  MOE_CHECK(waiting_.insert(arrival).second);
  return Place(*this, arrival);
}

size_t AdmissionQueue::size() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

void AdmissionQueue::CountReturn() {
  MutexLock lock(mutex_);
  ++returns_;
}

uint64_t AdmissionQueue::returns() const {
  MutexLock lock(mutex_);
  return returns_;
}

}  // namespace moestro::router
