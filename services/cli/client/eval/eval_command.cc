#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/eval/questions.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct EvalFlags {
  ServerFlags server;
  std::string file;
  int concurrency = 4;
  int limit = 0;
  uint32_t max_tokens = 64;
  bool json = false;
  std::string answers_file;
};

absl::StatusOr<std::vector<Question>> ReadQuestions(const EvalFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file));
  absl::StatusOr<std::vector<Question>> questions = ParseQuestions(text);
  if (!questions.ok()) return Annotate(questions.status(), flags.file);
  // Takes evenly spaced questions, so that each task keeps its share.
  const size_t limit = flags.limit > 0 ? std::min<size_t>(flags.limit, questions->size()) : questions->size();
  std::vector<Question> chosen;
  for (size_t i = 0; i < limit; ++i) chosen.push_back(std::move((*questions)[i * questions->size() / limit]));
  return chosen;
}

// Asks all questions, several at a time. The first failure ends the run.
class Examination {
 public:
  Examination(const EvalFlags& flags, const std::vector<Question>& questions)
      : flags_(flags), questions_(questions), answers_(questions.size()) {}

  absl::Status Run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < flags_.concurrency; ++i) threads.emplace_back([this] { Ask(); });
    const bool terminal = IsTerminal(StandardStream::kStderr);
    while (done_ < questions_.size() && !failed_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (terminal) std::fprintf(stderr, "\r%zu of %zu questions", done_.load(), questions_.size());
    }
    if (terminal) std::fprintf(stderr, "\r\033[K");
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(mutex_);
    return status_;
  }

  // Valid after Run.
  Scores scores() {
    MutexLock lock(mutex_);
    return scores_;
  }
  // One for each question, in their order.
  std::vector<std::string> answers() {
    MutexLock lock(mutex_);
    return answers_;
  }

 private:
  void Ask() {
    RouterClient client(flags_.server);
    for (size_t i = next_++; i < questions_.size() && !failed_; i = next_++) {
      v1::GenerateRequest request = questions_[i].request;
      request.set_max_tokens(flags_.max_tokens);
      request.set_temperature(0);
      Answer answer;
      const absl::Status status = StreamAnswer(client, request, /*print=*/false, answer);
      Note(i, std::move(answer.text), status);
    }
  }

  void Note(size_t i, std::string answer, const absl::Status& status) {
    const MutexLock lock(mutex_);
    if (!status.ok()) {
      if (status_.ok()) status_ = status;
      failed_ = true;
      return;
    }
    scores_.Add(questions_[i].task, answer == questions_[i].answer);
    answers_[i] = std::move(answer);
    ++done_;
  }

  const EvalFlags& flags_;
  const std::vector<Question>& questions_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Scores scores_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> answers_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CannotWriteAnswers(const EvalFlags& flags) {
  return absl::InvalidArgumentError(absl::StrCat("--answers ", flags.answers_file, ": cannot be written"));
}

// Opened before the first question, so that no answers are computed that cannot be written. No file without the flag.
absl::StatusOr<std::ofstream> OpenAnswers(const EvalFlags& flags) {
  std::ofstream file;
  if (flags.answers_file.empty()) return file;
  file.open(flags.answers_file, std::ios::trunc);
  if (!file) return CannotWriteAnswers(flags);
  return file;
}

absl::Status WriteAnswers(const EvalFlags& flags, const std::vector<Question>& questions,
                          const std::vector<std::string>& answers, std::ofstream& file) {
  for (size_t i = 0; i < questions.size(); ++i) {
    const nlohmann::json line = {
        {"task", questions[i].task}, {"expected", questions[i].answer}, {"answer", answers[i]}};
    file << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return file.flush() ? absl::OkStatus() : CannotWriteAnswers(flags);
}

absl::Status Eval(const EvalFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Question> questions, ReadQuestions(flags));
  MOE_ASSIGN_OR_RETURN(std::ofstream answers, OpenAnswers(flags));
  Examination examination(flags, questions);
  MOE_RETURN_IF_ERROR(examination.Run());
  if (flags.json) {
    PrintJson(examination.scores().ToJson(), /*indent=*/true);
  } else {
    PrintText(examination.scores().ToText());
  }
  return answers.is_open() ? WriteAnswers(flags, questions, examination.answers(), answers) : absl::OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App& app, std::vector<Command>& commands) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "Share of exact matches over a file of questions, answered greedily");
  AddServerFlags(*command, flags->server);
  command->add_option("file", flags->file, "One JSON object per line: task, prompt or messages, answer")->required();
  command->add_option("--concurrency", flags->concurrency, "Questions at a time")->check(CLI::Range(1, 256));
  command->add_option("--limit", flags->limit, "Ask only this many, evenly spaced; 0: all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")->check(CLI::Range(1, 1 << 16));
  command->add_flag("--json", flags->json, "Scores as JSON");
  command->add_option("--answers", flags->answers_file,
                      "File for the answers: one JSON line per question, in the order of the questions");
  commands.push_back({command, [flags] { return Eval(*flags); }});
}

}  // namespace moestro::cli
