#include "services/router/access/retry_after.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

constexpr char kType[] = "moestro/retry-after";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, RequestClock::Duration wait) {
  const int64_t seconds = std::max<int64_t>(std::chrono::ceil<std::chrono::seconds>(wait).count(), 1);
  status.SetPayload(kType, absl::Cord(absl::StrCat(seconds)));
  return status;
}

std::optional<int64_t> RetryAfterSeconds(const absl::Status& status) {
  const auto payload = status.GetPayload(kType);
  int64_t seconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &seconds)) return std::nullopt;
  return seconds;
}

}  // namespace moestro::router
