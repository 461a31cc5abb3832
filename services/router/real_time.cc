#include "services/router/real_time.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace moestro::router {

RealTimeChoice TakeRealTimePriority(const std::string& runtime_file) {
  int64_t runtime_us = -1;
  std::ifstream(runtime_file) >> runtime_us;  // 0 if there is no number
  if (runtime_us <= 0) {
    return {.reason = absl::StrCat(runtime_file, " leaves no time for other processes: set it to 950000")};
  }
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_RR)};
  if (sched_setscheduler(0, SCHED_RR, &lowest) != 0) {
    return {.reason = absl::StrCat(std::strerror(errno), ": needs RLIMIT_RTPRIO 1 (deploy/README.md, CPUs)")};
  }
  return {.real_time = true, .reason = "permitted"};
}

}  // namespace moestro::router
