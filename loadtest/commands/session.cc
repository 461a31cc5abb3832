#include "loadtest/commands/session.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/report/build_info.h"
#include "common/report/files.h"
#include "common/report/number.h"
#include "loadtest/report/metrics.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

constexpr std::chrono::seconds kSettleTime{1};

}  // namespace

void AddSessionFlags(FlagSet& program, SessionFlags& flags) {
  AddServerOptions(program, flags.server);
  program
      .Add("--timeout", flags.timeout_seconds,
           "Seconds after which a request counts as failed, at most a week; 0: never")
      .Range(0.0, 604800.0);
  program.Add("--max-in-flight", flags.max_in_flight, "Most requests in flight; further ones are sent late")
      .Range(1, 4096);
  program.Add("--seed", flags.seed, "The same seed gives the same requests at the same times");
  program.Add("--slo-ttft", flags.slo.ttft_seconds, "Target for the first token, in seconds").Positive();
  program.Add("--slo-tpot", flags.slo.tpot_seconds, "Target for each later token, in seconds, averaged over a request")
      .Positive();
  program
      .Add("--metrics", flags.metrics,
           "A role's metrics, http://HOST:PORT/metrics or HOST:PORT; may be repeated. Adds memory, KV pages and batch "
           "over time to the report")
      .Delimiter(',');
  program.Add("--metrics-interval", flags.metrics_seconds, "Seconds between two scrapes of the metrics")
      .Range(0.1, 3600.0);
  program.Add("--out", flags.out_dir, "Directory for the report as WORKLOAD.md, .html (with plots) and .json");
  program.Add("--json", flags.json_file, "File for the JSON; '-': stdout, instead of the Markdown");
  program.AddSwitch("--requests", flags.requests, "Include every request in the JSON");
}

absl::StatusOr<std::unique_ptr<Session>> Session::Begin(const SessionFlags& flags, const std::string& compare_server,
                                                        std::function<bool()> interrupted) {
  std::unique_ptr<Session> session(new Session(flags, std::move(interrupted)));
  if (!flags.out_dir.empty()) MOE_RETURN_IF_ERROR(MakeReportDirectory("--out", flags.out_dir));
  session->servers_ = {flags.server};
  MOE_ASSIGN_OR_RETURN(session->model_, AskModel(flags.server));
  if (!compare_server.empty()) {
    session->servers_.push_back({.address = compare_server, .connect_seconds = flags.server.connect_seconds});
    MOE_ASSIGN_OR_RETURN(const ModelInfo other, AskModel(session->servers_.back()));
    if (other.fingerprint != session->model_.fingerprint) {
      return absl::FailedPreconditionError(absl::StrCat("--compare-server serves another model (", other.name,
                                                        ") than --server (", session->model_.name,
                                                        "): their times are not comparable"));
    }
  }
  session->transport_ = ConnectServers(session->servers_, flags.timeout_seconds);
  if (!flags.metrics.empty()) {
    MOE_ASSIGN_OR_RETURN(session->scraper_, Scraper::Begin(flags.metrics, flags.metrics_seconds, FetchMetrics));
  }
  return session;
}

RunResult Session::Run(Workload& workload, const std::function<std::string()>& what) {
  RunOptions options;
  options.max_in_flight = flags_.max_in_flight;
  options.interrupted = interrupted_;
  options.progress = [&](const Counts& counts, double seconds) { progress_.Show(counts, seconds, what()); };
  RunResult result = RunWorkload(workload, *transport_, options);
  progress_.Clear();
  return result;
}

absl::Status Session::Finish(Report& report, const std::vector<Record>& records) {
  report.facts.insert(report.facts.begin(),
                      {{"Model", absl::StrCat(model_.name, ", fingerprint ", model_.fingerprint, ", context of ",
                                              model_.max_context_tokens, " tokens")},
                       {"Seed", absl::StrCat(flags_.seed)}});
  report.revision = ThisBuild().revision;
  report.date = Today();
  report.facts.emplace_back("Measured", absl::StrCat(report.date, ", by revision ", RevisionText(report.revision)));
  if (IsDirty(report.revision)) {
    std::fprintf(stderr, "warning: built from %s: nobody can repeat this report\n",
                 RevisionText(report.revision).c_str());
  }
  if (scraper_) {
    // A client learns of its request's end before the roles have returned everything.
    std::this_thread::sleep_for(kSettleTime);
    AddMetricsSection(scraper_->End(), report);
  }
  if (flags_.requests) report.data["requests"] = RequestsJson(records);
  const std::string json = ReportJson(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::string markdown = ReportMarkdown(report);
  const std::string& text = flags_.json_file == "-" ? json : markdown;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  if (!flags_.json_file.empty() && flags_.json_file != "-") {
    MOE_RETURN_IF_ERROR(WriteReportFile("--json", flags_.json_file, json));
  }
  if (flags_.out_dir.empty()) return absl::OkStatus();
  const std::filesystem::path out = flags_.out_dir;
  MOE_RETURN_IF_ERROR(WriteReportFile("--out", out / (report.workload + ".json"), json));
  MOE_RETURN_IF_ERROR(WriteReportFile("--out", out / (report.workload + ".md"), markdown));
  return WriteReportFile("--out", out / (report.workload + ".html"), ReportHtml(report));
}

}  // namespace moestro::loadtest
