// Deadlines of calls, on the steady clock. gRPC also takes moments of the system's clock: a step of that clock (NTP, a
// virtual machine that resumes) would end or stretch calls.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <optional>

namespace moestro {

// The moment `left` from now, for whatever of gRPC takes a deadline.
inline gpr_timespec DeadlineIn(std::chrono::duration<double> left) {
  const auto microseconds = static_cast<int64_t>(left.count() * 1e6);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(microseconds, GPR_TIMESPAN));
}

// Until when the caller waits; nullopt: for ever.
inline std::optional<std::chrono::steady_clock::time_point> DeadlineOf(const grpc::ServerContext& context) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return std::nullopt;
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC), gpr_now(GPR_CLOCK_MONOTONIC));
  return std::chrono::steady_clock::now() + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

}  // namespace moestro
