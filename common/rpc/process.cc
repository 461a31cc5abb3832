#include "common/rpc/process.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <string>

namespace moestro {

TerminationSignal::TerminationSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool TerminationSignal::WaitFor(std::chrono::milliseconds timeout) {
  if (arrived_) return true;
  timespec wait{};
  wait.tv_sec = timeout.count() / 1000;
  wait.tv_nsec = timeout.count() % 1000 * 1000000;
  arrived_ = sigtimedwait(&signals_, nullptr, &wait) > 0;
  return arrived_;
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
  spdlog::error("{}", std::string(status.message()));
  return ExitCode(status);
}

}  // namespace moestro
