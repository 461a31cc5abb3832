// The life of a process between its start and SIGTERM.
#pragma once

#include <chrono>
#include <csignal>

#include "absl/status/status.h"

namespace moestro {

// Exit codes of every binary.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;      // it ran and failed
inline constexpr int kExitUsage = 2;        // a flag or an input is wrong
inline constexpr int kExitUnavailable = 3;  // something it needs is not there (a peer, memory, a port)
inline constexpr int kExitMemoryFault = 4;  // shared memory that could not be read (common/platform/memory_fault.h)

// Create it first thing in main, before any thread: SIGTERM and SIGINT are blocked in all threads and collected here,
// SIGPIPE is ignored, and SIGBUS in shared memory ends the process with kExitMemoryFault.
class TerminationSignal {
 public:
  TerminationSignal();
  // True once SIGTERM or SIGINT has arrived (it stays true); waits for it up to `timeout`.
  bool WaitFor(std::chrono::milliseconds timeout);

 private:
  sigset_t signals_;
  bool arrived_ = false;
};

// Lets the process have as many file descriptors as its hard limit allows: each client takes one. UNAVAILABLE below
// 4096.
absl::Status RaiseDescriptorLimit();

// kExitUsage for INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED and UNIMPLEMENTED, kExitUnavailable for UNAVAILABLE and
// RESOURCE_EXHAUSTED, kExitOk for OK, kExitFailure otherwise. Who supervises a role does not start it again after
// kExitUsage: these codes are for what stays wrong until somebody changes it.
int ExitCode(const absl::Status& status);

// Logs the error and gives its exit code.
int ReportFatal(const absl::Status& status);

}  // namespace moestro
