// Options of every role of a node: the directory of its sockets, its instance, its metrics address.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/process/settings.h"
#include "common/telemetry/log.h"

namespace moestro {

class ProgramFlags;

struct NodeOptions {
  std::string run_dir = "/tmp/moestro";  // contains the unix sockets of all roles
  std::string instance = "default";      // prefix of the shared-memory objects: one per node on a machine
  std::string metrics_address;           // host:port of /metrics; empty = none
  LogOptions log;
  // The values in effect of the role's flags, as RunRole parsed them and the role completes them.
  std::shared_ptr<Settings> settings = std::make_shared<Settings>();
  int drain_seconds = 30;  // time for running requests to finish after SIGTERM
  // A thread that has work and does not beat for this long is hung. A thread beats with every layer of the model and
  // every few MB loaded. A layer of the largest models takes below 20 s on a slow CPU at full context.
  int stall_seconds = 120;
};

// Adds --run-dir, --instance, --metrics-address, --log-level, --log-format, --drain-seconds, --stall-seconds, the usual
// --version, and --config FILE: TOML whose section [<role>] holds any of the role's options. A section of no role and a
// key outside the sections are errors.
void AddNodeOptions(ProgramFlags& flags, const std::string& role, NodeOptions& options);

// What --version prints after the name: "1.2.3".
std::string ProgramVersion();

// The body of main after the flags are declared: parses them, sets up the log, calls `run` and reports its errors and
// exceptions. Returns the exit code. CANCELLED from `run` means regular termination.
int RunRole(ProgramFlags& flags, int argc, char** argv, const std::string& role, const NodeOptions& options,
            absl::FunctionRef<absl::Status()> run);

// Creates run_dir if needed, only for this user. INVALID_ARGUMENT names the wrong flag. Among other cases: socket paths
// would exceed the kernel's limit (107 bytes), run_dir belongs to neither this user nor root, others may write to it.
absl::Status ValidateNodeOptions(const NodeOptions& options);

// The file through which decode lends its device (common/platform/device_loan.h).
std::string DecodeDevicePath(const NodeOptions& options);

// The file through which the computing roles agree on cores (common/platform/shared_cores.h).
std::string SharedCoresPath(const NodeOptions& options);

// A role's heartbeat file (watchdog.h).
std::string HeartbeatPath(const NodeOptions& options, const std::string& role);

// "unix:<run_dir>/<role>.sock"
std::string RoleAddress(const NodeOptions& options, const std::string& role);

}  // namespace moestro
