#include "common/rpc/node_options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <system_error>

#include "common/base/status.h"
#include "common/platform/instance.h"

namespace moestro {

void AddNodeOptions(CLI::App& app, NodeOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--run-dir", options.run_dir, "Directory of the node's unix sockets; the same for all roles");
  app.add_option("--instance", options.instance, "Name of the node: prefix of its shared-memory objects");
  app.add_option("--metrics-address", options.metrics_address, "host:port that serves /metrics; empty: none");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off");
  app.add_option("--drain-seconds", options.drain_seconds, "How long running requests may go on after SIGTERM")
      ->check(CLI::Range(0, 86400));
  app.set_config("--config", "", "TOML file with any of these options, keys without the dashes");
  app.set_version_flag("--version", std::string("moestro ") + MOESTRO_VERSION);
}

absl::Status ValidateNodeOptions(const NodeOptions& options) {
  MOE_RETURN_IF_ERROR(Annotate(ValidateInstanceName(options.instance), "--instance"));
  constexpr size_t kMaxSocketPath = 107;  // sun_path holds 108 bytes, one of them the terminating zero
  const size_t longest = options.run_dir.size() + std::string("/weight_store.sock").size();
  if (options.run_dir.empty() || longest > kMaxSocketPath) {
    return absl::InvalidArgumentError("--run-dir " + options.run_dir + ": socket paths may have at most " +
                                      std::to_string(kMaxSocketPath) + " bytes; choose a shorter directory");
  }
  std::error_code error;
  std::filesystem::create_directories(options.run_dir, error);
  if (error) return absl::InvalidArgumentError("--run-dir " + options.run_dir + ": " + error.message());
  return absl::OkStatus();
}

std::string RoleAddress(const NodeOptions& options, const std::string& role) {
  return "unix:" + options.run_dir + "/" + role + ".sock";
}

}  // namespace moestro
