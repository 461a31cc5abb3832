// Chooses the path of every request of the process and tracks their load to do so. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/mutex.h"
#include "services/router/admission/choose_path.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

class PathPolicy {
 public:
  // `clock` must outlive the policy.
  PathPolicy(const PathSettings& settings, RequestClock& clock) : settings_(settings), clock_(clock) {}

  // One attempt at a generation. Counts as load for as long as it lives. Movable; must not outlive the policy.
  class Work {
   public:
    Work(Work&& other) noexcept;
    Work& operator=(Work&&) = delete;
    ~Work();
    // Moves the attempt from prefill to decode.
    void BeginDecode();

   private:
    friend class PathPolicy;
    Work(PathPolicy& policy, bool decoding) : policy_(&policy), decoding_(decoding) {}
    PathPolicy* policy_;
    bool decoding_;
  };

  struct Decision {
    PathChoice choice;
    Work work;  // counts as decode from the start if the path is kChunked
  };

  // ChoosePath, and counts the work from now on: of two long prompts that arrive together, the second sees the first.
  Decision Choose(uint32_t new_tokens, bool prefill_up);

  // True if the choice for such a prompt depends on whether prefill is up.
  bool IsForPrefill(uint32_t new_tokens) const { return router::IsForPrefill(settings_, new_tokens); }

  bool DecodeIsIdle() const;

 private:
  NodeLoad Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t& Count(bool decoding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return decoding ? decoding_ : prefilling_; }

  const PathSettings settings_;
  RequestClock& clock_;
  mutable Mutex mutex_;
  uint32_t decoding_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t prefilling_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<RequestClock::TimePoint> decode_ended_at_ ABSL_GUARDED_BY(mutex_);  // when `decoding_` last became 0
};

}  // namespace moestro::router
