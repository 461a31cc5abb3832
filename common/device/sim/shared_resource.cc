#include "common/device/sim/shared_resource.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace moestro::device {

SharedResource::SharedResource(double rate, std::vector<User> users) : rate_(rate), active_(users.size()) {
  MOE_CHECK(rate > 0 && !users.empty());
  for (User& user : users) {
    MOE_CHECK(user.requesters > 0 && user.rate > 0);
    users_.push_back({.user = std::move(user)});
  }
}

void SharedResource::Begin(size_t user) {
  for (State& state : users_) state.seen = 0;
  users_[user].active.clear();
}

double SharedResource::RateOf(size_t user, const std::vector<bool>& active) const {
  // Serves first who needs least for each requester; who gets what it needs leaves the rest to the others.
  std::vector<size_t> order;
  for (size_t i = 0; i < users_.size(); ++i) {
    if (active[i]) order.push_back(i);
  }
  const auto need = [&](size_t i) { return users_[i].user.rate / users_[i].user.requesters; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return need(a) < need(b); });
  double left = rate_, requesters = 0;
  for (const size_t i : order) requesters += users_[i].user.requesters;
  for (const size_t i : order) {
    const double share = std::min(need(i), left / requesters) * users_[i].user.requesters;
    if (i == user) return share;
    left -= share;
    requesters -= users_[i].user.requesters;
  }
  MOE_CHECK(false);
  return 0;
}

double SharedResource::Use(size_t user, double begin, double amount) {
  State& own = users_[user];
  double now = own.active.empty() ? begin : std::max(begin, own.active.back().end);
  const double first = now;
  while (amount > 0) {
    double next = std::numeric_limits<double>::infinity();  // when another begins or ends
    for (size_t i = 0; i < users_.size(); ++i) {
      State& other = users_[i];
      active_[i] = i == user;
      if (i == user) continue;
      while (other.seen < other.active.size() && other.active[other.seen].end <= now) ++other.seen;
      if (other.seen == other.active.size()) continue;
      const Interval& interval = other.active[other.seen];
      active_[i] = interval.begin <= now;
      next = std::min(next, active_[i] ? interval.end : interval.begin);
    }
    const double rate = RateOf(user, active_), taken = rate * (next - now);
    if (taken >= amount) {
      now += amount / rate;
      break;
    }
    amount -= taken;
    now = next;
  }
  if (!own.active.empty() && own.active.back().end >= first) {
    own.active.back().end = now;
  } else {
    own.active.push_back({first, now});
  }
  return now;
}

}  // namespace moestro::device
