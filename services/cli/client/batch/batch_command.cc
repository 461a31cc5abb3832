#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/batch/batch_run.h"
#include "common/batch/journal.h"
#include "common/batch/request_file.h"
#include "common/batch/result_file.h"
#include "common/process/server_options.h"
#include "services/cli/client/batch/http_executor.h"
#include "services/cli/client/batch/progress.h"
#include "services/cli/client/credentials.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/command.h"

namespace moestro::cli {
namespace {

struct BatchFlags {
  std::string file;
  batch::ResultPaths paths;
  std::string url = "http://127.0.0.1:8080";
  double connect_seconds = kConnectSeconds;
  CredentialFlags credentials;
  int in_flight = 64;
  int give_up_seconds = 3600;
};

// Nothing is overwritten: an output without a journal is complete, or something else.
absl::Status CheckOutput(const BatchFlags& flags, const std::string& journal) {
  if (flags.paths.errors == flags.paths.output) {
    return absl::InvalidArgumentError("--errors: must be another file than --out; leave it out to have one file");
  }
  std::error_code ignored;
  if (std::filesystem::exists(journal, ignored)) return absl::OkStatus();
  for (const std::string& path : {flags.paths.output, flags.paths.errors}) {
    if (!path.empty() && std::filesystem::exists(path, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": exists, and no batch is under way there; choose another name, or remove it"));
    }
  }
  return absl::OkStatus();
}

void SayHowItBegins(const batch::RequestFile& file, const batch::Journal& journal) {
  const batch::Journal::Counts counts = journal.counts();
  if (counts.done > 0) {
    std::fprintf(stderr, "goes on: %zu of %zu lines are done (%s)\n", counts.done, file.size(), journal.path().c_str());
  }
  if (journal.damaged() > 0) {
    std::fprintf(stderr, "%s: %zu damaged lines; what they held is done again\n", journal.path().c_str(),
                 journal.damaged());
  }
}

std::string SumUp(const BatchFlags& flags, const batch::Progress& progress) {
  std::string text = absl::StrCat(progress.all, " lines in ", flags.paths.output);
  if (progress.counts.failed > 0 && !flags.paths.errors.empty()) {
    text = absl::StrCat(progress.all - progress.counts.failed, " lines in ", flags.paths.output, ", ",
                        progress.counts.failed, " failed in ", flags.paths.errors);
  } else if (progress.counts.failed > 0) {
    absl::StrAppend(&text, ", ", progress.counts.failed, " of them failed");
  }
  absl::StrAppend(&text, "; this run: ", progress.generated_tokens, " tokens in ", HumanTime(progress.seconds));
  if (progress.seconds > 0) {
    absl::StrAppendFormat(&text, ", %.1f tok/s", static_cast<double>(progress.generated_tokens) / progress.seconds);
  }
  return text;
}

// Runs until all is done, or Ctrl-C.
absl::Status RunBatch(const batch::RequestFile& file, batch::Journal& journal, const BatchFlags& flags,
                      batch::Progress& last) {
  MOE_ASSIGN_OR_RETURN(std::string base, BaseUrl(flags.url));
  MOE_ASSIGN_OR_RETURN(const std::string api_key, ReadApiKey(flags.credentials));
  HttpExecutor executor(std::move(base), api_key, flags.credentials.tls_ca, flags.connect_seconds);
  batch::BatchRun run(file, journal, executor,
                      {.in_flight = flags.in_flight, .patience = std::chrono::seconds(flags.give_up_seconds)});
  const InterruptWatcher interrupts([&] { run.Stop(); });
  ProgressPrinter printer;
  const absl::Status status = run.Run([&](const batch::Progress& progress) {
    printer.Show(progress);
    last = progress;
  });
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "\n", journal.counts().done, " of ", file.size(),
                                   " lines are saved in ", journal.path(), "; the same command goes on from there"));
}

absl::Status Batch(const BatchFlags& flags) {
  BlockInterrupts();
  const std::string journal_path = flags.paths.output + ".journal";
  MOE_RETURN_IF_ERROR(CheckOutput(flags, journal_path));
  batch::RequestFile::Problems problems;
  MOE_ASSIGN_OR_RETURN(const auto file, batch::RequestFile::Open(flags.file, {}, problems));
  MOE_ASSIGN_OR_RETURN(const auto journal, batch::Journal::Open(journal_path, *file));
  SayHowItBegins(*file, *journal);
  batch::Progress last{.all = file->size(), .counts = journal->counts()};
  MOE_RETURN_IF_ERROR(RunBatch(*file, *journal, flags, last));
  MOE_RETURN_IF_ERROR(batch::WriteResults(*file, *journal, flags.paths));
  ::unlink(journal_path.c_str());
  std::fprintf(stderr, "%s\n", SumUp(flags, last).c_str());
  if (last.counts.failed == 0) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat(last.counts.failed, " of ", last.all, " lines failed; each says why in ",
                                         flags.paths.errors.empty() ? flags.paths.output : flags.paths.errors));
}

}  // namespace

void AddBatchCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<BatchFlags>();
  FlagSet command = program.AddCommand(
      "batch", "Answer a file of requests in OpenAI's batch format; goes on where it was stopped or killed");
  command.Footer(
      "Each line of FILE is a request:\n"
      "  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",\n"
      "   \"body\": {\"model\": \"NAME\", \"messages\": [{\"role\": \"user\", \"content\": \"Sort [5, 2, 9].\"}]}}\n"
      "url may also be /v1/completions, /v1/responses or /v1/messages. The whole file is checked before anything is "
      "sent.\n"
      "\n"
      "The output has a line for each request, in the order of FILE:\n"
      "  {\"id\": \"batch_req_..\", \"custom_id\": \"a\",\n"
      "   \"response\": {\"status_code\": 200, \"request_id\": \"..\", \"body\": {..}}, \"error\": null}\n"
      "A request that the server refuses (400, 404) has that answer as its response. Busy or restarting roles and\n"
      "routers are waited for, and its request is sent again.\n"
      "\n"
      "Until the end the answers are in OUT.journal. Ctrl-C, kill -9 and a failing machine cost the requests under "
      "way\n"
      "only: the same command goes on. It refuses if FILE has changed since. kill -9 loses no answer that has come, a\n"
      "power failure those of its last second.\n"
      "\n"
      "Exit codes: 0 every line was answered; 1 stopped, or lines failed; 2 FILE or a flag is wrong; 3 the server\n"
      "stayed away.");
  command.Add("file", flags->file, "The requests, one JSON object a line").Required().HelpText("FILE");
  command.Add("--out", flags->paths.output, "Where the answers go; must not exist yet").Required().HelpText("OUT");
  command
      .Add("--errors", flags->paths.errors,
           "Where lines go that failed; without it they are in OUT, too. Made only if a line fails")
      .HelpText("FILE");
  command.Add("--url", flags->url, "The router's HTTP address").FromEnvironment("MOESTRO_URL");
  AddConnectTimeout(command, flags->connect_seconds);
  AddCredentialFlags(command, flags->credentials);
  command
      .Add("--in-flight", flags->in_flight,
           "Requests at once. The router takes as many as its --queue-limit and 256 more. Larger batches give "
           "more tokens/s: see `moestro plan --explain batch`")
      .Range(1, 4096);
  command
      .Add("--give-up-after", flags->give_up_seconds,
           "Ends if the server has answered nothing for so many seconds; 0: never")
      .Range(0, 30 * 24 * 3600);
  commands.push_back({command, [flags] { return Batch(*flags); }});
}

}  // namespace moestro::cli
