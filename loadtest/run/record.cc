#include "loadtest/run/record.h"

#include <algorithm>

namespace moestro::loadtest {

double Record::longest_wait() const {
  double longest = 0, last = sent;
  const auto heard = [&](double at) {
    longest = std::max(longest, at - last);
    last = at;
  };
  if (started) heard(*started);
  for (const Arrival& arrival : arrivals) heard(arrival.at);
  if (ended) heard(*ended);
  return longest;
}

}  // namespace moestro::loadtest
