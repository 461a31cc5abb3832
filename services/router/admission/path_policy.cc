#include "services/router/admission/path_policy.h"

#include <algorithm>
#include <utility>

namespace moestro::router {

PathPolicy::Work::Work(Work&& other) noexcept
    : policy_(std::exchange(other.policy_, nullptr)), attempt_(other.attempt_) {}

PathPolicy::Work::~Work() {
  if (policy_ == nullptr) return;
  MutexLock lock(policy_->mutex_);
  if (!attempt_->decoding) {
    policy_->LeavePrefill(attempt_);
  } else {
    const RequestClock::TimePoint now = policy_->clock_.Now();
    policy_->decoding_.Leave(attempt_->has_place, now);
    if (policy_->decoding_.size() == 0) policy_->decode_ended_at_ = now;
  }
  policy_->attempts_.erase(attempt_);
}

void PathPolicy::Work::BeginDecode() {
  MutexLock lock(policy_->mutex_);
  policy_->LeavePrefill(attempt_);
  attempt_->decoding = true;
  policy_->decoding_.Enter(policy_->clock_.Now());
}

void PathPolicy::Work::NotePlace(double waited_seconds) {
  MutexLock lock(policy_->mutex_);
  attempt_->has_place = true;
  attempt_->begun += std::chrono::duration_cast<RequestClock::Duration>(std::chrono::duration<double>(waited_seconds));
}

std::optional<double> PathPolicy::Work::NoteFirstToken(bool counts) {
  MutexLock lock(policy_->mutex_);
  attempt_->pending_tokens = 0;
  const std::optional<double> predicted = std::exchange(attempt_->predicted, std::nullopt);
  if (!predicted || !counts) return std::nullopt;
  const double ratio = Seconds(policy_->clock_.Now() - attempt_->begun) / *predicted;
  policy_->costs_.Note(*attempt_->way, ratio);
  return ratio;
}

PathPolicy::Decision PathPolicy::Choose(uint32_t new_tokens, bool prefill_up, uint32_t cached_tokens,
                                        std::optional<PromptWay> asked) {
  MutexLock lock(mutex_);
  const NodeLoad load = Load();
  const CostBook::Prompt prompt{new_tokens, cached_tokens};
  const PathForecast forecast = settings_.predicted ? Forecast(load, prompt) : PathForecast();
  PathChoice choice = ChoosePath(settings_, load, new_tokens, prefill_up, forecast, asked);
  Attempt attempt{.decoding = choice.path == PrefillPath::kChunked, .way = choice.way, .begun = clock_.Now()};
  if (choice.way) {
    attempt.predicted = forecast.of(*choice.way);
    if (attempt.predicted) costs_.NoteChoice(*choice.way);
    if (attempt.predicted && attempt.decoding) *attempt.predicted -= forecast.place_seconds;
  }
  if (attempt.decoding) {
    attempt.pending_tokens = new_tokens;
    decoding_.Enter(clock_.Now());
  } else if (attempt.predicted) {
    attempt.own_seconds = *attempt.predicted - PrefillBusySeconds();
  }
  attempts_.push_back(attempt);
  return {.choice = std::move(choice), .work = Work(*this, std::prev(attempts_.end()))};
}

bool PathPolicy::DecodeIsIdle() const {
  MutexLock lock(mutex_);
  return router::DecodeIsIdle(settings_, Load());
}

void PathPolicy::SetPlaces(uint32_t places) {
  MutexLock lock(mutex_);
  decoding_.SetPlaces(places, clock_.Now());
}

void PathPolicy::SetCosts(Role role, const std::vector<PromptCost>& costs) {
  MutexLock lock(mutex_);
  costs_.Set(role, costs);
}

double PathPolicy::correction(PromptWay way) const {
  MutexLock lock(mutex_);
  return costs_.correction(way);
}

NodeLoad PathPolicy::Load() const {
  NodeLoad load{.decoding = decoding_.size(),
                .prefilling = static_cast<uint32_t>(attempts_.size()) - decoding_.size(),
                .decode_idle = std::nullopt};
  if (decode_ended_at_) load.decode_idle = clock_.Now() - *decode_ended_at_;
  return load;
}

PathForecast PathPolicy::Forecast(const NodeLoad& load, const CostBook::Prompt& prompt) const {
  PathForecast forecast;
  const bool idle = router::DecodeIsIdle(settings_, load);
  const auto set = [&](PromptWay way, std::optional<double> seconds, std::optional<double> for_client) {
    forecast.seconds[static_cast<size_t>(way)] = seconds;
    forecast.for_client[static_cast<size_t>(way)] = for_client;
  };
  forecast.place_seconds = decoding_.WaitSeconds(clock_.Now());
  // Who waits for a place finds the prompts of the others done.
  const bool shares = forecast.place_seconds == 0;
  const CostBook::Prompt beside_others{shares ? TokensInDecode(prompt.new_tokens) : prompt.new_tokens,
                                       prompt.cached_tokens};
  const uint32_t decoding = shares ? load.decoding : decoding_.places() - 1;
  std::optional<double> chunked = costs_.Seconds(PromptWay::kChunked, beside_others, load.prefilling == 0, decoding);
  // Longer than all that is known, with the others' tokens: then without.
  if (!chunked) chunked = costs_.Seconds(PromptWay::kChunked, prompt, load.prefilling == 0, decoding);
  if (chunked) *chunked += forecast.place_seconds;
  set(PromptWay::kChunked, chunked, costs_.Seconds(PromptWay::kChunked, prompt, idle, idle ? 0 : 1));
  const double busy = PrefillBusySeconds();
  const auto in_prefill = [&](PromptWay way, bool alone) {
    mutex_.AssertHeld();
    const std::optional<double> own = costs_.Seconds(way, prompt, alone, 0);
    set(way, own ? std::make_optional(busy + *own) : std::nullopt, costs_.Seconds(way, prompt, idle, 0));
  };
  in_prefill(PromptWay::kInPlace, load.decoding == 0);
  in_prefill(PromptWay::kStreamed, idle);
  return forecast;
}

double PathPolicy::PrefillBusySeconds() const {
  double seconds = 0;
  bool is_first = true;
  for (const Attempt& attempt : attempts_) {
    if (attempt.decoding) continue;
    double left = attempt.own_seconds;
    if (std::exchange(is_first, false)) {
      left -= Seconds(clock_.Now() - std::max(attempt.begun, prefill_free_at_));
    }
    seconds += std::max(0.0, left);
  }
  return seconds;
}

// A step gives half of its rows to the prompt that came first, and half to the shortest: two prompts advance together,
// and until the shorter one is done.
uint32_t PathPolicy::TokensInDecode(uint32_t new_tokens) const {
  uint64_t tokens = new_tokens;
  for (const Attempt& attempt : attempts_) tokens += std::min(attempt.pending_tokens, new_tokens);
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, UINT32_MAX));
}

// One that waited for its turn leaves the running one where it is.
void PathPolicy::LeavePrefill(Attempts::iterator attempt) {
  const auto first = std::ranges::find(attempts_, false, &Attempt::decoding);
  if (first == attempt) prefill_free_at_ = clock_.Now();
}

}  // namespace moestro::router
