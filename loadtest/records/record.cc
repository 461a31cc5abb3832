#include "loadtest/records/record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

absl::Status RequestError(const absl::Status& error, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", absl::string_view(error.message()));
  return absl::IsUnavailable(error) ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
}

absl::Status CheckAnyCompleted(const std::vector<Record>& records) {
  if (std::ranges::any_of(records, &Record::completed)) return absl::OkStatus();
  const auto failed = std::ranges::find_if(records, &Record::failed);
  if (failed == records.end()) return absl::FailedPreconditionError("no request completed");
  return RequestError(failed->status, "no request completed; the first error");
}

}  // namespace moestro::loadtest
