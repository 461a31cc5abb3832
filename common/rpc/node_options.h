// What every role of a node is told: where its sockets are, which node it belongs to, where its metrics go.
#pragma once

#include <string>

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
};

// Adds --run-dir, --instance, --metrics-address, --log-level, --log-format, --drain-seconds, the usual --version, and
// --config FILE: TOML whose section [<role>] holds any of the role's options.
void AddNodeOptions(CLI::App& app, const std::string& role, NodeOptions& options);

// Parses the command line. False: the process ends now with `exit_code` (help and version were printed, or what is
// wrong).
bool ParseCommandLine(CLI::App& app, int argc, char** argv, int& exit_code);

// Creates run_dir if needed; INVALID_ARGUMENT names the flag that is wrong, among others when the socket paths would be
// longer than the kernel allows (107 bytes), or when run_dir belongs to neither this user nor root.
absl::Status ValidateNodeOptions(const NodeOptions& options);

// The file by which decode lends its device (common/platform/device_loan.h).
std::string DecodeDevicePath(const NodeOptions& options);

// "unix:<run_dir>/<role>.sock"
std::string RoleAddress(const NodeOptions& options, const std::string& role);

}  // namespace moestro
