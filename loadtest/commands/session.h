// The part that all commands share: the connection, runs with progress, and the report at the end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/server_options.h"
#include "loadtest/client/server.h"
#include "loadtest/commands/progress.h"
#include "loadtest/metrics/scraper.h"
#include "loadtest/records/statistics.h"
#include "loadtest/report/report.h"
#include "loadtest/run/runner.h"

namespace moestro {
class FlagSet;
}  // namespace moestro

namespace moestro::loadtest {

struct SessionFlags {
  ServerOptions server;
  double timeout_seconds = 600;
  int max_in_flight = 512;
  uint64_t seed = 1;
  Slo slo;
  std::vector<std::string> metrics;
  double metrics_seconds = 1;
  std::string out_dir;
  std::string json_file;
  bool requests = false;
};
void AddSessionFlags(FlagSet& program, SessionFlags& flags);

class Session {  // thread-compatible
 public:
  // Asks the servers for their model and starts to scrape the metrics. `compare_server`: a second server; empty: none.
  static absl::StatusOr<std::unique_ptr<Session>> Begin(const SessionFlags& flags, const std::string& compare_server,
                                                        std::function<bool()> interrupted);

  const ModelInfo& model() const { return model_; }
  const std::vector<ServerOptions>& servers() const { return servers_; }
  const SessionFlags& flags() const { return flags_; }

  // `what`: the text of the progress line, called whenever it is shown.
  RunResult Run(Workload& workload, const std::function<std::string()>& what);

  // Adds the metrics' results, and the model to the facts. Writes the report: Markdown on stdout, files as the flags
  // say.
  absl::Status Finish(Report& report, const std::vector<Record>& records);

 private:
  Session(const SessionFlags& flags, std::function<bool()> interrupted)
      : flags_(flags), interrupted_(std::move(interrupted)) {}

  const SessionFlags flags_;
  const std::function<bool()> interrupted_;
  std::vector<ServerOptions> servers_;
  ModelInfo model_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Scraper> scraper_;
  Progress progress_;
};

}  // namespace moestro::loadtest
