// A machine in virtual time: the resources that simulated devices and simulated programs take, and the time of each
// thread. There is one clock for all devices of a world.
//
// A resource of turns does one thing at a time, in the order of the requests: the processors of a level, a direction of
// a link. A shared one gives its rate to all who ask, such as the memory that CPU cores read and that copies to a GPU
// read. What takes several resources takes them together: it begins when all its turns have come and ends with the one
// that is done last.
//
// Sharing is fair: at every moment all requesters of the users that are active get the same rate. Requesters that need
// less leave the rest to the others (max-min fairness). A requester is what asks by itself: a core, or a copy engine.
//
// Requests come in the order of the programs, not of time, so nobody knows who else will be active. Hence rounds: users
// run again and again, and see when the others were active in their latest runs, until no run changes any more. Then
// every moment's rates are fair, and the result depends on the programs only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"

namespace moestro::device {

// One thread at a time uses a shared resource; everything else is thread-safe.
class World {
 public:
  struct User {
    std::string name;
    double requesters = 1;
    double rate = 0;  // of all its requesters together, alone
  };
  // One user's side of a shared resource.
  struct Share {
    size_t resource = 0;
    size_t user = 0;
  };
  // What something takes: seconds of some turns, and amounts of some shares.
  struct Turn {
    size_t resource = 0;
    double seconds = 0;
  };
  struct Amount {
    Share share;
    double amount = 0;
  };

  // The resource of this name, free at first. Names come from the machine: there are few.
  size_t Turns(std::string_view name);
  // `rate`: what the resource gives altogether, per second. REQUIRES: at least one user; all numbers positive.
  size_t Shared(double rate, std::vector<User> users);

  // The end of what could begin at `begin`. The requests of a share's user follow one another: one that begins before
  // the last one's end waits for it.
  double Take(double begin, std::span<const Turn> turns, std::span<const Amount> amounts = {});
  // Seconds that the resource has been taken, since the run began.
  double BusySeconds(size_t turns) const;

  // A run of these users begins, at time 0 of all threads: turns are free, and what the users took in the run before is
  // what they are taken to do now.
  void Begin(std::span<const Share> users);

  // The calling thread's time. A thread is in one world at a time; in another one it begins at 0.
  double Now() const;
  void AdvanceTo(double seconds);

 private:
  struct TurnState {
    std::string name;
    double free_at = 0;
    double busy = 0;
  };
  struct Interval {
    double begin = 0;
    double end = 0;
  };
  struct UserState {
    User user;
    bool runs = false;
    // When it was active; ascending, apart from each other. In the run before, unless it does not run now.
    std::vector<Interval> known = {};
    std::vector<Interval> taken = {};  // in the run that goes on
  };
  struct SharedState {
    double rate = 0;
    std::vector<UserState> users;
  };

  double TakeShare(double begin, const Amount& amount) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static double RateOf(const SharedState& shared, size_t user, const std::vector<bool>& active);

  static inline std::atomic<uint64_t> runs_{0};
  std::atomic<uint64_t> run_{++runs_};  // whose time a thread's is
  mutable Mutex mutex_;
  std::vector<TurnState> turns_ ABSL_GUARDED_BY(mutex_);
  std::vector<SharedState> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::device
