#include "common/process/process.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "common/platform/memory_fault.h"
#include "common/telemetry/log.h"

namespace moestro {

TerminationSignal::TerminationSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal(SIGPIPE, SIG_IGN);
  ExitOnMemoryFault(kExitMemoryFault);
}

bool TerminationSignal::WaitFor(std::chrono::milliseconds timeout) {
  if (arrived_) return true;
  timespec wait{};
  wait.tv_sec = timeout.count() / 1000;
  wait.tv_nsec = timeout.count() % 1000 * 1000000;
  arrived_ = sigtimedwait(&signals_, nullptr, &wait) > 0;
  return arrived_;
}

ReloadSignal::ReloadSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

bool ReloadSignal::Arrived() {
  const timespec none{};
  return sigtimedwait(&signals_, nullptr, &none) > 0;
}

absl::Status RaiseDescriptorLimit() {
  constexpr rlim_t kLeast = 4096;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  if (limit.rlim_max < kLeast) {
    return absl::UnavailableError("this process may have " + std::to_string(limit.rlim_max) +
                                  " file descriptors, and needs " + std::to_string(kLeast) +
                                  ": raise the hard limit (ulimit -Hn, LimitNOFILE=, ulimits: nofile)");
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "setrlimit");
  return absl::OkStatus();
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return kExitUnavailable;
    default:
      return kExitFailure;
  }
}

int ReportFatal(const absl::Status& status) {
  LogError("{}", std::string(status.message()));
  return ExitCode(status);
}

}  // namespace moestro
