#include "services/router/admission/path_policy.h"

#include <utility>

namespace moestro::router {

PathPolicy::Work::Work(Work&& other) noexcept
    : policy_(std::exchange(other.policy_, nullptr)), decoding_(other.decoding_) {}

PathPolicy::Work::~Work() {
  if (policy_ == nullptr) return;
  MutexLock lock(policy_->mutex_);
  --policy_->Count(decoding_);
  if (decoding_ && policy_->decoding_ == 0) policy_->decode_ended_at_ = policy_->clock_.Now();
}

void PathPolicy::Work::BeginDecode() {
  MutexLock lock(policy_->mutex_);
  --policy_->Count(decoding_);
  decoding_ = true;
  ++policy_->Count(decoding_);
}

PathPolicy::Decision PathPolicy::Choose(uint32_t new_tokens, bool prefill_up) {
  MutexLock lock(mutex_);
  PathChoice choice = ChoosePath(settings_, Load(), new_tokens, prefill_up);
  const bool decoding = choice.path == PrefillPath::kChunked;
  ++Count(decoding);
  return {.choice = std::move(choice), .work = Work(*this, decoding)};
}

bool PathPolicy::DecodeIsIdle() const {
  MutexLock lock(mutex_);
  return router::DecodeIsIdle(settings_, Load());
}

NodeLoad PathPolicy::Load() const {
  NodeLoad load{.decoding = decoding_, .prefilling = prefilling_, .decode_idle = std::nullopt};
  if (decode_ended_at_) load.decode_idle = clock_.Now() - *decode_ended_at_;
  return load;
}

}  // namespace moestro::router
