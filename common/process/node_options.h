// What every role of a node is told: where its sockets are, which node it belongs to, where its metrics go.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/telemetry/log.h"

namespace CLI {
class App;
}

namespace moestro {

struct NodeOptions {
  std::string run_dir = "/tmp/moestro";  // holds the unix sockets of all roles
  std::string instance = "default";      // names the shared-memory objects: one per node on a machine
  std::string metrics_address;           // host:port of /metrics; empty = none
  LogOptions log;
  int drain_seconds = 30;  // after SIGTERM, running requests may finish for so long
  // A thread that has work and shows no sign of life for so long hangs. Such signs come with every layer of the model
  // and with every few MB that are loaded: a layer of the largest models takes below 20 s on a slow CPU at full
  // context.
  int stall_seconds = 120;
};

// Adds --run-dir, --instance, --metrics-address, --log-level, --log-format, --drain-seconds, --stall-seconds, the
// usual --version, and --config FILE: TOML whose section [<role>] holds any of the role's options. A section
// of no role and a key outside the sections are errors.
void AddNodeOptions(CLI::App& app, const std::string& role, NodeOptions& options);

// What main does once the flags are described: parses them, sets the log up and calls `run`, whose errors and
// exceptions it reports. Gives the exit code; CANCELLED of `run` means that it was terminated, as it may be.
int RunRole(CLI::App& app, int argc, char** argv, const std::string& role, const NodeOptions& options,
            absl::FunctionRef<absl::Status()> run);

// Creates run_dir if needed, for this user alone; INVALID_ARGUMENT names the flag that is wrong, among others when the
// socket paths would be longer than the kernel allows (107 bytes), when run_dir belongs to neither this user nor root,
// or when others may write to it.
absl::Status ValidateNodeOptions(const NodeOptions& options);

// The file by which decode lends its device (common/platform/device_loan.h).
std::string DecodeDevicePath(const NodeOptions& options);

// Where a role shows that it lives (watchdog.h).
std::string HeartbeatPath(const NodeOptions& options, const std::string& role);

// "unix:<run_dir>/<role>.sock"
std::string RoleAddress(const NodeOptions& options, const std::string& role);

}  // namespace moestro
