// Real-time priority of the router, which works for microseconds at a time and would otherwise wait for milliseconds
// behind the roles that compute on the same CPUs.
#pragma once

#include <string>

namespace moestro::router {

struct RealTimeChoice {
  bool real_time = false;
  std::string reason;  // for the log; says how to get it where it is not permitted
};

// Where it is permitted, gives the calling thread the lowest real-time priority. Threads that it starts from then on
// inherit it; those that work on large texts leave it meanwhile (text/text_turns.h). Needs RLIMIT_RTPRIO 1 or
// CAP_SYS_NICE, and a kernel that leaves other processes a part of every CPU, so that a thread which never sleeps takes
// the machine from nobody: `runtime_file` has the microseconds of a second for all real-time threads, -1 if it does
// not.
RealTimeChoice TakeRealTimePriority(const std::string& runtime_file = "/proc/sys/kernel/sched_rt_runtime_us");

}  // namespace moestro::router
