// How long a request would wait for a place in decode's batch: from how long others hold theirs. Not thread-safe.
#pragma once

#include <cstdint>

#include "services/router/admission/clock.h"

namespace moestro::router {

class PlaceLine {
 public:
  // How many there are; 0, as at first: not known, so nobody waits.
  void SetPlaces(uint32_t places, RequestClock::TimePoint now);
  uint32_t places() const { return places_; }

  // A request comes to decode, or leaves it. One that had no place frees none.
  void Enter(RequestClock::TimePoint now);
  void Leave(bool has_place, RequestClock::TimePoint now);
  // Requests that have a place or wait for one.
  uint32_t size() const { return size_; }

  // Expected for a request that comes now; 0 while a place is free. Nobody knows when an answer ends, so this is a
  // mean: places become free as often as they did. Before one has, it is the time that all have been held so far.
  double WaitSeconds(RequestClock::TimePoint now) const;

 private:
  uint32_t held() const;
  double HeldSeconds(RequestClock::TimePoint now) const;
  void Count(RequestClock::TimePoint now);

  uint32_t places_ = 0;
  uint32_t size_ = 0;
  // Of all places together, and how often one became free. Both fade with each that does.
  double held_seconds_ = 0;
  double ends_ = 0;
  RequestClock::TimePoint counted_at_;
};

}  // namespace moestro::router
