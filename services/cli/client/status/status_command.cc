#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "services/cli/client/run_dir.h"
#include "services/cli/client/status/look_rpc.h"
#include "services/cli/client/status/node_view.h"
#include "services/cli/client/status/render.h"
#include "services/cli/client/status/sources.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

using status::Look;
using status::MetricsAddresses;
using status::NodeView;

struct StatusFlags {
  std::string run_dir;
  std::vector<std::string> metrics;
  double watch_seconds = 0;  // 0: one look
  double timeout_seconds = 1;
  bool json = false;
};

// Read again at every look: a node may start meanwhile.
absl::StatusOr<MetricsAddresses> Addresses(const StatusFlags& flags) {
  std::ifstream file(flags.run_dir + "/node.env");
  std::stringstream node_env;
  if (file) node_env << file.rdbuf();
  MetricsAddresses addresses = status::AddressesOfNode(node_env.str());
  MOE_ASSIGN_OR_RETURN(const MetricsAddresses named, status::AddressesOfFlags(flags.metrics));
  for (const auto& [role, address] : named) addresses[role] = address;
  return addresses;
}

absl::StatusOr<Look> TakeLook(const StatusFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const MetricsAddresses addresses, Addresses(flags));
  return status::LookAt(flags.run_dir, addresses, flags.timeout_seconds);
}

void Print(const StatusFlags& flags, const NodeView& view) {
  const bool watching = flags.watch_seconds > 0;
  if (flags.json) {
    PrintText(
        status::StatusJson(view).dump(watching ? -1 : 2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
        "\n");
    return;
  }
  const std::string clear = !watching ? "" : IsTerminal(StandardStream::kStdout) ? "\033[H\033[J" : "\n";
  PrintText(clear + status::StatusText(view));
}

void Wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

absl::Status ShowStatus(const StatusFlags& flags) {
  MOE_ASSIGN_OR_RETURN(Look look, TakeLook(flags));
  if (flags.watch_seconds > 0) {
    Print(flags, Compare(look, nullptr));
    while (true) {
      MOE_RETURN_IF_ERROR(OutputStatus());
      Wait(flags.watch_seconds);
      MOE_ASSIGN_OR_RETURN(Look next, TakeLook(flags));
      Print(flags, Compare(next, &look));
      look = std::move(next);
    }
  }
  NodeView view = Compare(look, nullptr);
  if (look.roles.at("router").metrics) {
    constexpr double kInterval = 1;  // rates need two looks; long enough for several tokens
    Wait(kInterval);
    MOE_ASSIGN_OR_RETURN(const Look next, TakeLook(flags));
    view = Compare(next, &look);
  }
  Print(flags, view);
  if (!view.serving()) return absl::UnavailableError("the node in " + flags.run_dir + " does not serve");
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<StatusFlags>();
  flags->run_dir = DefaultRunDir();
  FlagSet command = program.AddCommand(
      "status", "The node at a glance: roles, model, requests, KV pages, latencies. Exit code 3 if it does not serve");
  command.Add("--run-dir", flags->run_dir, "Run directory of the node, with its sockets and deploy/up's node.env");
  command
      .Add("--metrics", flags->metrics,
           "Addresses of /metrics, if they differ from node.env: HOST:PORT of the router, with weight store, "
           "prefill and "
           "decode at the next ports; or ROLE=HOST:PORT for each")
      .TypeName("[ROLE=]HOST:PORT");
  command
      .Add("--watch", flags->watch_seconds,
           "Repeat every this many seconds, until Ctrl-C or until the output is closed")
      .Range(0.1, 86400.0)
      .TypeName("SECONDS");
  command.Add("--timeout", flags->timeout_seconds, "Seconds after which a silent role counts as down")
      .Range(0.001, 86400.0);
  command.AddSwitch("--json", flags->json, "One JSON object; with --watch one per line");
  commands.push_back({command, [flags] { return ShowStatus(*flags); }});
}

}  // namespace moestro::cli
