#include "services/router/admission/place_line.h"

#include <algorithm>

#include "common/base/check.h"

namespace moestro::router {
namespace {

constexpr double kKept = 0.9;  // of what was counted, with each place that becomes free: some ten of them decide

}  // namespace

uint32_t PlaceLine::held() const { return places_ == 0 ? size_ : std::min(size_, places_); }

double PlaceLine::HeldSeconds(RequestClock::TimePoint now) const {
  return held_seconds_ + held() * Seconds(now - counted_at_);
}

void PlaceLine::Count(RequestClock::TimePoint now) {
  held_seconds_ = HeldSeconds(now);
  counted_at_ = now;
}

void PlaceLine::SetPlaces(uint32_t places, RequestClock::TimePoint now) {
  Count(now);
  places_ = places;
}

void PlaceLine::Enter(RequestClock::TimePoint now) {
  Count(now);
  ++size_;
}

void PlaceLine::Leave(bool has_place, RequestClock::TimePoint now) {
  MOE_CHECK(size_ > 0);
  Count(now);
  --size_;
  if (!has_place) return;
  held_seconds_ *= kKept;
  ends_ = kKept * (ends_ + 1);
}

double PlaceLine::WaitSeconds(RequestClock::TimePoint now) const {
  if (places_ == 0 || size_ < places_) return 0;
  const double seconds_per_end = ends_ > 0 ? HeldSeconds(now) / ends_ : HeldSeconds(now);
  return (size_ - places_ + 1) * seconds_per_end / places_;
}

}  // namespace moestro::router
