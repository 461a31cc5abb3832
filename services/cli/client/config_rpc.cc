#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/process/settings.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "moestro/v1/settings.grpc.pb.h"
#include "services/cli/client/run_dir.h"
#include "services/cli/client/status/sources.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct ConfigFlags {
  std::string run_dir;
  std::string role;  // empty: all
  bool json = false;
};

Setting::Origin FromProto(v1::Setting::Origin origin) {
  switch (origin) {
    case v1::Setting::ORIGIN_SET:
      return Setting::Origin::kSet;
    case v1::Setting::ORIGIN_MEASURED:
      return Setting::Origin::kMeasured;
    case v1::Setting::ORIGIN_DERIVED:
      return Setting::Origin::kDerived;
    default:
      return Setting::Origin::kConstant;
  }
}

absl::StatusOr<std::vector<Setting>> SettingsOf(const std::string& run_dir, const std::string& role) {
  constexpr double kSeconds = 2;
  const ServerOptions server{.address = absl::StrCat("unix:", run_dir, "/", role, ".sock"),
                             .connect_seconds = kSeconds};
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(std::chrono::duration<double>(kSeconds)));
  v1::ListSettingsResponse reply;
  const grpc::Status status = v1::SettingsService::NewStub(ConnectServer(server))->ListSettings(&context, {}, &reply);
  using grpc::StatusCode;
  if (status.error_code() == StatusCode::UNAVAILABLE || status.error_code() == StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat(role, " does not answer within ", kSeconds, " s at ", server.address,
                                               ": is the node up? try deploy/status"));
  }
  MOE_RETURN_IF_ERROR(FromServer(status, server, role.c_str()));
  std::vector<Setting> settings;
  for (const v1::Setting& told : reply.settings()) {
    settings.push_back({told.name(), told.value(), FromProto(told.origin()), told.detail()});
  }
  return settings;
}

std::string LinesOf(const std::string& role, const std::vector<Setting>& settings) {
  size_t widest = 0;
  for (const Setting& setting : settings) widest = std::max(widest, setting.name.size());
  std::string text = absl::StrCat("[", role, "]\n");
  for (const Setting& setting : settings) {
    absl::StrAppendFormat(&text, "%-*s = %-16s # %s%s%s\n", static_cast<int>(widest), setting.name,
                          setting.value.empty() ? "\"\"" : setting.value, WordOf(setting.origin),
                          setting.detail.empty() ? "" : ": ", setting.detail);
  }
  return text;
}

nlohmann::ordered_json ListOf(const std::vector<Setting>& settings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Setting& setting : settings) {
    list.push_back({{"name", setting.name},
                    {"value", setting.value},
                    {"origin", WordOf(setting.origin)},
                    {"detail", setting.detail}});
  }
  return list;
}

absl::Status ShowConfig(const ConfigFlags& flags) {
  nlohmann::ordered_json roles = nlohmann::ordered_json::object();
  std::vector<std::string> texts;
  absl::Status silent;  // the first role that does not answer; the others' settings are shown all the same
  for (const std::string role : status::kRoles) {
    if (!flags.role.empty() && role != flags.role) continue;
    const absl::StatusOr<std::vector<Setting>> settings = SettingsOf(flags.run_dir, role);
    silent.Update(settings.status());
    if (!settings.ok()) continue;
    roles[role] = ListOf(*settings);
    texts.push_back(LinesOf(role, *settings));
  }
  if (texts.empty()) return silent;
  PrintText(flags.json ? roles.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"
                       : absl::StrJoin(texts, "\n"));
  return silent;
}

}  // namespace

void AddConfigCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<ConfigFlags>();
  flags->run_dir = DefaultRunDir();
  FlagSet command = program.AddCommand(
      "config",
      "The settings of a running node: each value in effect, and where it comes from. set: by whom (a file and its "
      "line, or the command line); measured and derived: from what; constant: why");
  command.Add("--run-dir", flags->run_dir, "Directory of the node's unix sockets");
  command.Add("--role", flags->role, "One role's only").OneOf({status::kRoles.begin(), status::kRoles.end()});
  command.AddSwitch("--json", flags->json, "One JSON object: each role's list of name, value, origin and detail");
  commands.push_back({command, [flags] { return ShowConfig(*flags); }});
}

}  // namespace moestro::cli
