#include "common/process/node_options.h"

#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <istream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/platform/instance.h"
#include "common/process/flags.h"
#include "common/process/process.h"

namespace moestro {
namespace {

constexpr std::array<const char*, 4> kRoles = {"router", "weight_store", "prefill", "decode"};

// Formats a value as on the command line.
std::string FlagText(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  std::ostringstream out;
  value.visit([&](const auto& typed) { out << typed; });
  return out.str();
}

// Rejects sections and keys that no role would read.
absl::StatusOr<toml::table> ParseFile(const std::string& role, std::istream& input) {
  toml::table file;
  try {
    file = toml::parse(input);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config: line ", error.source().begin.line, ": ", std::string(error.description())));
  }
  for (const auto& [key, value] : file) {
    const std::string name(key.str());
    if (!value.is_table()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--config: '", name, "' is in no section: move it below the line [", role, "], or that of another role"));
    }
    if (std::ranges::find(kRoles, name) == kRoles.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--config: unknown section [", name, "]: name it [",
                                                     absl::StrJoin(kRoles, "], ["), "], or remove it"));
    }
  }
  return file;
}

// Reads the role's section of a TOML file.
absl::StatusOr<std::vector<FlagSetting>> ReadSection(const std::string& role, std::istream& input) {
  MOE_ASSIGN_OR_RETURN(const toml::table file, ParseFile(role, input));
  std::vector<FlagSetting> found;
  const toml::table* section = file[role].as_table();
  if (section == nullptr) return found;
  for (const auto& [key, value] : *section) {
    if (value.is_table()) {
      return absl::InvalidArgumentError(absl::StrCat("--config: [", role, "] has a section '", std::string(key.str()),
                                                     "': a role's section holds options only"));
    }
    FlagSetting& setting = found.emplace_back();
    setting.name = key.str();
    setting.line = static_cast<int>(key.source().begin.line);
    if (const toml::array* list = value.as_array()) {
      for (const toml::node& element : *list) setting.values.push_back(FlagText(element));
    } else {
      setting.values.push_back(FlagText(value));
    }
  }
  return found;
}

}  // namespace

void AddNodeOptions(ProgramFlags& flags, const std::string& role, NodeOptions& options) {
  flags
      .Add("--run-dir", options.run_dir,
           "Directory of the node's unix sockets; the same for all roles, separate for each node")
      .Because("roles that somebody starts by hand find each other there");
  flags.Add("--instance", options.instance, "Name of the node: prefix of its shared-memory objects")
      .Because("one node on a machine needs no other name");
  flags.Add("--metrics-address", options.metrics_address, "host:port that serves /metrics; empty: none")
      .Because("nothing listens that nobody asked for");
  flags.Add("--log-level", options.log.level, "trace, debug, info, warn, error or off")
      .Because("a line or two for each request");
  flags.Add("--log-format", options.log.format, "text, or json: one object a line").Because("for people");
  flags.Add("--drain-seconds", options.drain_seconds, "How long running requests may continue after SIGTERM")
      .Range(0, 86400)
      .Because("most answers end within it, and what manages services waits a little longer");
  flags
      .Add("--stall-seconds", options.stall_seconds,
           "A thread that has work and makes no progress for this long is hung: the role stops serving, and its "
           "supervisor kills it")
      .Range(1, 86400)
      .Because("a layer of the largest models takes below 20 s on a slow CPU at full context");
  flags
      .AddFile("--config", "TOML file; its section [" + role + "] holds any of these options, without the dashes",
               [role](std::istream& file) { return ReadSection(role, file); })
      .Because("the defaults and the command line are enough");
  flags.AddVersion("moestro " + ProgramVersion());
}

std::string ProgramVersion() { return MOESTRO_VERSION; }

int RunRole(ProgramFlags& flags, int argc, char** argv, const std::string& role, const NodeOptions& options,
            absl::FunctionRef<absl::Status()> run) {
  if (const std::optional<int> exit_code = flags.Parse(argc, argv)) return *exit_code;
  options.settings->Assign(flags.Settings());
  if (const absl::Status status = InitLogging(role, options.log); !status.ok()) return ReportFatal(status);
  const absl::Status status = CatchExceptions(run);
  return status.ok() || absl::IsCancelled(status) ? kExitOk : ReportFatal(status);
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
  const bool created = std::filesystem::create_directories(options.run_dir, error);
  if (created && !error) {
    std::filesystem::permissions(options.run_dir, std::filesystem::perms::owner_all, error);
  }
  if (error) return absl::InvalidArgumentError("--run-dir " + options.run_dir + ": " + error.message());
  struct stat info;
  if (::stat(options.run_dir.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, "--run-dir " + options.run_dir);
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::InvalidArgumentError("--run-dir " + options.run_dir +
                                      ": belongs to another user, who could impersonate any role; choose another");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::InvalidArgumentError("--run-dir " + options.run_dir +
                                      ": may be written by other users, who could impersonate any role; chmod go-w "
                                      "it, or choose another");
  }
  return absl::OkStatus();
}

std::string DecodeDevicePath(const NodeOptions& options) { return options.run_dir + "/decode-device.lock"; }

std::string SharedCoresPath(const NodeOptions& options) { return options.run_dir + "/cores.lock"; }

std::string HeartbeatPath(const NodeOptions& options, const std::string& role) {
  return options.run_dir + "/" + role + ".heartbeat";
}

std::string RoleAddress(const NodeOptions& options, const std::string& role) {
  return "unix:" + options.run_dir + "/" + role + ".sock";
}

}  // namespace moestro
