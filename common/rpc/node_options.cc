#include "common/rpc/node_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <istream>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/platform/instance.h"
#include "common/rpc/process.h"

namespace moestro {
namespace {

// TOML of which only one section counts, as if its keys stood alone.
class SectionConfig : public CLI::ConfigTOML {
 public:
  explicit SectionConfig(std::string section) : section_(std::move(section)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
    const auto is_other = [&](const CLI::ConfigItem& item) {
      const bool is_bracket =
          item.name == "++" || item.name == "--";  // how the library marks begin and end of a section
      return is_bracket || item.parents != std::vector<std::string>{section_};
    };
    std::erase_if(found, is_other);
    for (CLI::ConfigItem& item : found) item.parents.clear();
    return found;
  }

 private:
  const std::string section_;
};

}  // namespace

void AddNodeOptions(CLI::App& app, const std::string& role, NodeOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--run-dir", options.run_dir,
                 "Directory of the node's unix sockets; the same for all roles, and no other node's");
  app.add_option("--instance", options.instance, "Name of the node: prefix of its shared-memory objects");
  app.add_option("--metrics-address", options.metrics_address, "host:port that serves /metrics; empty: none");
  app.add_option("--log-level", options.log.level, "trace, debug, info, warn, error or off");
  app.add_option("--log-format", options.log.format, "text, or json: one object a line");
  app.add_option("--drain-seconds", options.drain_seconds, "How long running requests may go on after SIGTERM")
      ->check(CLI::Range(0, 86400));
  app.set_config("--config", "",
                 "TOML file; its section [" + role + "] holds any of these options, without the dashes");
  app.config_formatter(std::make_shared<SectionConfig>(role));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_version_flag("--version", std::string("moestro ") + MOESTRO_VERSION);
}

bool ParseCommandLine(CLI::App& app, int argc, char** argv, int& exit_code) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage;
    return false;
  }
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
  struct stat info;
  if (::stat(options.run_dir.c_str(), &info) == 0 && info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::InvalidArgumentError("--run-dir " + options.run_dir +
                                      ": belongs to another user, who could stand in for any role; choose another");
  }
  return absl::OkStatus();
}

std::string DecodeDevicePath(const NodeOptions& options) { return options.run_dir + "/decode-device.lock"; }

std::string RoleAddress(const NodeOptions& options, const std::string& role) {
  return "unix:" + options.run_dir + "/" + role + ".sock";
}

}  // namespace moestro
