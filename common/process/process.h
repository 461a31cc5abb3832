// The life of a process from its start to SIGTERM.
#pragma once

#include <chrono>
#include <csignal>

#include "absl/status/status.h"

namespace moestro {

// Exit codes of every binary.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;      // it ran and failed
inline constexpr int kExitUsage = 2;        // wrong flag or input
inline constexpr int kExitUnavailable = 3;  // something it needs is missing (a peer, memory, a port)
inline constexpr int kExitMemoryFault = 4;  // a fault in shared memory (common/platform/memory_fault.h)

// Create it first in main, before any thread. It blocks SIGTERM and SIGINT in all threads and collects them, ignores
// SIGPIPE, and makes SIGBUS in shared memory end the process with kExitMemoryFault.
class TerminationSignal {
 public:
  TerminationSignal();
  // True once SIGTERM or SIGINT has arrived, from then on; waits up to `timeout` for it.
  bool WaitFor(std::chrono::milliseconds timeout);

 private:
  sigset_t signals_;
  bool arrived_ = false;
};

// Collects SIGHUP, which asks a process to read its files again. Create it before any thread.
class ReloadSignal {
 public:
  ReloadSignal();
  bool Arrived();  // whether SIGHUP has arrived since the last call

 private:
  sigset_t signals_;
};

// Raises the limit of file descriptors to the hard limit: each client takes one. UNAVAILABLE below 4096.
absl::Status RaiseDescriptorLimit();

// kExitUsage for INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED and UNIMPLEMENTED, kExitUnavailable for UNAVAILABLE and
// RESOURCE_EXHAUSTED, kExitOk for OK, kExitFailure otherwise. A supervisor does not restart a role after kExitUsage:
// these errors persist until somebody fixes the cause.
int ExitCode(const absl::Status& status);

// Logs the error and returns its exit code.
int ReportFatal(const absl::Status& status);

}  // namespace moestro
