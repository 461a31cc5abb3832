#include "common/device/sim/world.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace moestro::device {
namespace {

// The calling thread's time in the run of a world that it knows last.
struct ThreadTime {
  uint64_t run = 0;
  double seconds = 0;
};
thread_local ThreadTime thread_time;

}  // namespace

double World::Now() const { return thread_time.run == run_ ? thread_time.seconds : 0; }
void World::AdvanceTo(double seconds) { thread_time = {run_, std::max(Now(), seconds)}; }

size_t World::Turns(std::string_view name) {
  MutexLock lock(mutex_);
  const auto found = std::ranges::find(turns_, name, &TurnState::name);
  if (found != turns_.end()) return static_cast<size_t>(found - turns_.begin());
  turns_.push_back({.name = std::string(name)});
  return turns_.size() - 1;
}

size_t World::Shared(double rate, std::vector<User> users) {
  MutexLock lock(mutex_);
  MOE_CHECK(rate > 0 && !users.empty());
  SharedState shared{.rate = rate, .users = {}};
  for (User& user : users) {
    MOE_CHECK(user.requesters > 0 && user.rate > 0);
    shared.users.push_back({.user = std::move(user)});
  }
  shared_.push_back(std::move(shared));
  return shared_.size() - 1;
}

void World::Begin(std::span<const Share> users) {
  MutexLock lock(mutex_);
  run_ = ++runs_;
  for (TurnState& turn : turns_) turn.free_at = turn.busy = 0;
  for (SharedState& shared : shared_) {
    for (UserState& user : shared.users) user.runs = false;
  }
  for (const Share& share : users) {
    UserState& user = shared_[share.resource].users[share.user];
    user.runs = true;
    user.known = std::exchange(user.taken, {});
  }
}

double World::Take(double begin, std::span<const Turn> turns, std::span<const Amount> amounts) {
  MutexLock lock(mutex_);
  for (const Turn& turn : turns) begin = std::max(begin, turns_[turn.resource].free_at);
  double end = begin;
  for (const Turn& turn : turns) end = std::max(end, begin + turn.seconds);
  for (const Amount& amount : amounts) end = std::max(end, TakeShare(begin, amount));
  for (const Turn& turn : turns) {
    turns_[turn.resource].free_at = end;
    turns_[turn.resource].busy += end - begin;
  }
  return end;
}

double World::BusySeconds(size_t turns) const {
  MutexLock lock(mutex_);
  return turns_[turns].busy;
}

double World::RateOf(const SharedState& shared, size_t user, const std::vector<bool>& active) {
  // Serves first who needs least for each requester; who gets what it needs leaves the rest to the others.
  std::vector<size_t> order;
  for (size_t i = 0; i < shared.users.size(); ++i) {
    if (active[i]) order.push_back(i);
  }
  const auto need = [&](size_t i) { return shared.users[i].user.rate / shared.users[i].user.requesters; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return need(a) < need(b); });
  double left = shared.rate, requesters = 0;
  for (const size_t i : order) requesters += shared.users[i].user.requesters;
  for (const size_t i : order) {
    const double share = std::min(need(i), left / requesters) * shared.users[i].user.requesters;
    if (i == user) return share;
    left -= share;
    requesters -= shared.users[i].user.requesters;
  }
  MOE_CHECK(false);
  return 0;
}

double World::TakeShare(double begin, const Amount& wanted) {
  SharedState& shared = shared_[wanted.share.resource];
  const size_t user = wanted.share.user;
  UserState& own = shared.users[user];
  std::vector<bool> active(shared.users.size());
  double amount = wanted.amount;
  double now = own.taken.empty() ? begin : std::max(begin, own.taken.back().end);
  const double first = now;
  while (amount > 0) {
    double next = std::numeric_limits<double>::infinity();  // when another begins or ends
    for (size_t i = 0; i < shared.users.size(); ++i) {
      const UserState& other = shared.users[i];
      active[i] = i == user;
      if (i == user) continue;
      const std::vector<Interval>& intervals = other.runs ? other.known : other.taken;
      const auto interval = std::ranges::upper_bound(intervals, now, {}, &Interval::end);
      if (interval == intervals.end()) continue;
      active[i] = interval->begin <= now;
      next = std::min(next, active[i] ? interval->end : interval->begin);
    }
    const double rate = RateOf(shared, user, active), taken = rate * (next - now);
    if (taken >= amount) {
      now += amount / rate;
      break;
    }
    amount -= taken;
    now = next;
  }
  if (!own.taken.empty() && own.taken.back().end >= first) {
    own.taken.back().end = now;
  } else {
    own.taken.push_back({first, now});
  }
  return now;
}

}  // namespace moestro::device
