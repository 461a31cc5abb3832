// A resource that several programs use at the same time, such as the memory that CPU cores read and that copies to a
// GPU read. Each program runs in a simulation of its own; here they share one virtual time.
//
// Fair: at every moment all requesters of the users that are active get the same rate. Requesters that need less leave
// the rest to the others (max-min fairness). A requester is what asks by itself: a core, or a copy engine.
//
// Simulations run one after the other, in rounds: a user's run sees when the others were active in their latest runs.
// Rounds repeat until no run changes any more. Then every moment's rates are fair, and the result depends on the users
// only. Not thread-safe: one simulation runs at a time, and its requests have a fixed order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moestro::device {

class SharedResource {
 public:
  struct User {
    std::string name;
    double requesters = 1;
    double rate = 0;  // of all its requesters together, alone
  };

  // `rate`: what the resource gives altogether, per second. REQUIRES: at least one user; all numbers positive.
  SharedResource(double rate, std::vector<User> users);

  // Begins a run of the user: forgets when it was active in its last one.
  void Begin(size_t user);
  // The end time of `amount` that the user takes from `begin` on. Its requests follow one another: one that begins
  // before the last one's end waits for it.
  double Use(size_t user, double begin, double amount);

 private:
  struct Interval {
    double begin = 0;
    double end = 0;
  };
  struct State {
    User user;
    std::vector<Interval> active = {};  // ascending, apart from each other
    size_t seen = 0;                    // intervals that the running user's requests have left behind
  };

  double RateOf(size_t user, const std::vector<bool>& active) const;

  const double rate_;
  std::vector<State> users_;
  std::vector<bool> active_;  // users at the moment of a request
};

// One user's side of it, for a simulated device.
struct SharedUse {
  SharedResource* resource = nullptr;
  size_t user = 0;

  double Use(double begin, double amount) const { return resource->Use(user, begin, amount); }
};

}  // namespace moestro::device
