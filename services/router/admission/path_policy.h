// Chooses the path of every request of the process and tracks their load to do so. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "services/router/admission/choose_path.h"
#include "services/router/admission/clock.h"
#include "services/router/admission/cost_book.h"
#include "services/router/admission/place_line.h"

namespace moestro::router {

class PathPolicy {
 public:
  // `clock` must outlive the policy.
  PathPolicy(const PathSettings& settings, RequestClock& clock) : settings_(settings), clock_(clock) {}

 private:
  // An attempt at a generation.
  struct Attempt {
    bool decoding = false;
    bool has_place = false;                // in decode's batch
    std::optional<PromptWay> way = {};     // nullopt: prefill's own choice
    std::optional<double> predicted = {};  // seconds to the first token, without waiting for a place
    double own_seconds = 0;                // in prefill: of these, its own; 0: not known
    uint32_t pending_tokens = 0;           // of its prompt, that decode still computes
    RequestClock::TimePoint begun = {};
  };
  using Attempts = std::list<Attempt>;

 public:
  // Counts as load for as long as it lives. Movable; must not outlive the policy.
  class Work {
   public:
    Work(Work&& other) noexcept;
    Work& operator=(Work&&) = delete;
    ~Work();
    // Decode's batch has taken the attempt along, `waited_seconds` after it came to decode.
    void NotePlace(double waited_seconds);
    // The first token is there: the prompt is done. Returns how long that took in terms of the prediction; nullopt:
    // there was none, or `counts` is false, because something else was in the way. Later calls give nullopt.
    std::optional<double> NoteFirstToken(bool counts);
    // Moves the attempt from prefill to decode.
    void BeginDecode();
    // Seconds to the first token, without waiting for a place; nullopt: not predicted, or NoteFirstToken was called.
    std::optional<double> predicted() const { return attempt_->predicted; }
    // Nullopt: prefill decided.
    std::optional<PromptWay> way() const { return attempt_->way; }

   private:
    friend class PathPolicy;
    Work(PathPolicy& policy, Attempts::iterator attempt) : policy_(&policy), attempt_(attempt) {}
    PathPolicy* policy_;
    Attempts::iterator attempt_;
  };

  struct Decision {
    PathChoice choice;
    Work work;  // counts as decode from the start if the path is kChunked
  };

  // ChoosePath, and counts the work from now on: of two long prompts that arrive together, the second sees the first.
  Decision Choose(uint32_t new_tokens, bool prefill_up, uint32_t cached_tokens = 0,
                  std::optional<PromptWay> asked = std::nullopt);

  // True if the choice for such a prompt depends on whether prefill is up.
  bool IsForPrefill(uint32_t new_tokens) const { return router::IsForPrefill(settings_, new_tokens); }

  bool DecodeIsIdle() const;

  // How many sequences decode computes at once; 0, as at first: not known.
  void SetPlaces(uint32_t places);
  // What the role says prompts take; empty: it has gone.
  void SetCosts(Role role, const std::vector<PromptCost>& costs);
  // For metrics: what predictions of this way are multiplied with.
  double correction(PromptWay way) const;

 private:
  NodeLoad Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PathForecast Forecast(const NodeLoad& load, const CostBook::Prompt& prompt) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Seconds until prefill begins with a prompt that arrives now.
  double PrefillBusySeconds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With a share of the prompts that decode computes at the same time.
  uint32_t TokensInDecode(uint32_t new_tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The attempt is done with prefill.
  void LeavePrefill(Attempts::iterator attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PathSettings settings_;
  RequestClock& clock_;
  mutable Mutex mutex_;
  CostBook costs_ ABSL_GUARDED_BY(mutex_);
  Attempts attempts_ ABSL_GUARDED_BY(mutex_);  // in order of their choice, which is prefill's order
  PlaceLine decoding_ ABSL_GUARDED_BY(mutex_);
  std::optional<RequestClock::TimePoint> decode_ended_at_ ABSL_GUARDED_BY(mutex_);  // when the last one left decode
  RequestClock::TimePoint prefill_free_at_ ABSL_GUARDED_BY(mutex_);                 // when a prompt last left it
};

}  // namespace moestro::router
