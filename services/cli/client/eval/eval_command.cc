#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/eval/questions.h"
#include "services/cli/client/eval/scores.h"
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
  bool perplexity = false;
  bool json = false;
  std::string compare_file;
  std::string answers_file;
};

// Of one question.
struct Outcome {
  std::string answer;
  Scores::Expected expected;  // zero without --perplexity
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

// The earlier run of --compare; none without the flag.
absl::StatusOr<std::optional<Scores>> ReadEarlier(const EvalFlags& flags) {
  if (flags.compare_file.empty()) return std::nullopt;
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.compare_file));
  absl::StatusOr<Scores> earlier = Scores::FromJson(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!earlier.ok()) return Annotate(earlier.status(), absl::StrCat("--compare ", flags.compare_file));
  return *std::move(earlier);
}

absl::StatusOr<v1::TokenizeResponse> Tokenize(RouterClient& client, const v1::TokenizeRequest& request) {
  v1::TokenizeResponse reply;
  MOE_RETURN_IF_ERROR(client.Tokenize(request, reply));
  return reply;
}

// Scores the prompt's tokens, as Generate has them, followed by those of the expected answer.
absl::StatusOr<Scores::Expected> ScoreExpected(RouterClient& client, const Question& question) {
  Scores::Expected expected;
  if (question.answer.empty()) return expected;
  v1::TokenizeRequest prompt;
  if (question.request.has_chat()) {
    *prompt.mutable_chat() = question.request.chat();
  } else {
    prompt.set_text(question.request.prompt());
  }
  v1::TokenizeRequest answer;
  answer.set_text(question.answer);
  answer.set_no_special_tokens(true);
  MOE_ASSIGN_OR_RETURN(const v1::TokenizeResponse before, Tokenize(client, prompt));
  MOE_ASSIGN_OR_RETURN(const v1::TokenizeResponse after, Tokenize(client, answer));
  v1::ScoreRequest request;
  *request.mutable_token_ids()->mutable_ids() = before.ids();
  request.mutable_token_ids()->mutable_ids()->MergeFrom(after.ids());
  int position = 0;
  MOE_RETURN_IF_ERROR(client.Score(request, [&](const v1::ScoreResponse& reply) {
    for (const v1::PositionScore& score : reply.scores()) {
      if (position++ < before.ids_size()) continue;
      expected.sum_logprob += score.logprob();
      ++expected.tokens;
    }
  }));
  return expected;
}

// Asks all questions, several at a time. The first failure ends the run.
class Examination {
 public:
  Examination(const EvalFlags& flags, const std::vector<Question>& questions)
      : flags_(flags), questions_(questions), outcomes_(questions.size()) {}

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

  // One for each question, in their order. Valid after Run.
  std::vector<Outcome> outcomes() {
    MutexLock lock(mutex_);
    return outcomes_;
  }

 private:
  void Ask() {
    RouterClient client(flags_.server);
    for (size_t i = next_++; i < questions_.size() && !failed_; i = next_++) {
      Outcome outcome;
      const absl::Status status = AskOne(client, questions_[i], outcome);
      Note(i, std::move(outcome), status);
    }
  }

  absl::Status AskOne(RouterClient& client, const Question& question, Outcome& outcome) {
    v1::GenerateRequest request = question.request;
    request.set_max_tokens(flags_.max_tokens);
    request.set_temperature(0);
    Answer answer;
    MOE_RETURN_IF_ERROR(StreamAnswer(client, request, /*print=*/false, answer));
    outcome.answer = std::move(answer.text);
    if (!flags_.perplexity) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(outcome.expected, ScoreExpected(client, question));
    return absl::OkStatus();
  }

  void Note(size_t i, Outcome outcome, const absl::Status& status) {
    const MutexLock lock(mutex_);
    if (!status.ok()) {
      if (status_.ok()) status_ = status;
      failed_ = true;
      return;
    }
    outcomes_[i] = std::move(outcome);
    ++done_;
  }

  const EvalFlags& flags_;
  const std::vector<Question>& questions_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
};

// Sums in the order of the questions, so that the same answers give the same bits.
Scores Score(const std::vector<Question>& questions, const std::vector<Outcome>& outcomes) {
  Scores scores;
  for (size_t i = 0; i < questions.size(); ++i) {
    scores.Add(questions[i].task, outcomes[i].answer == questions[i].answer, outcomes[i].expected);
  }
  return scores;
}

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
                          const std::vector<Outcome>& outcomes, std::ofstream& file) {
  for (size_t i = 0; i < questions.size(); ++i) {
    const nlohmann::json line = {
        {"task", questions[i].task}, {"expected", questions[i].answer}, {"answer", outcomes[i].answer}};
    file << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return file.flush() ? absl::OkStatus() : CannotWriteAnswers(flags);
}

absl::Status Eval(const EvalFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Question> questions, ReadQuestions(flags));
  MOE_ASSIGN_OR_RETURN(const std::optional<Scores> earlier, ReadEarlier(flags));
  MOE_ASSIGN_OR_RETURN(std::ofstream answers, OpenAnswers(flags));
  Examination examination(flags, questions);
  MOE_RETURN_IF_ERROR(examination.Run());
  const std::vector<Outcome> outcomes = examination.outcomes();
  const Scores scores = Score(questions, outcomes);
  const absl::Status comparable = earlier ? scores.CheckComparable(*earlier) : absl::OkStatus();
  const Scores* before = earlier && comparable.ok() ? &*earlier : nullptr;
  if (flags.json) {
    PrintJson(scores.ToJson(before), /*indent=*/true);
  } else {
    PrintText(scores.ToText(before));
  }
  if (answers.is_open()) MOE_RETURN_IF_ERROR(WriteAnswers(flags, questions, outcomes, answers));
  return Annotate(comparable, absl::StrCat("--compare ", flags.compare_file));
}

}  // namespace

void AddEvalCommand(CLI::App& app, std::vector<Command>& commands) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand(
      "eval", "Share of exact matches over a file of questions, answered greedily; perplexity of the right answers");
  AddServerFlags(*command, flags->server);
  command->add_option("file", flags->file, "One JSON object per line: task, prompt or messages, answer")->required();
  command->add_option("--concurrency", flags->concurrency, "Questions at a time")->check(CLI::Range(1, 256));
  command->add_option("--limit", flags->limit, "Ask only this many, evenly spaced; 0: all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")->check(CLI::Range(1, 1 << 16));
  command->add_flag("--perplexity", flags->perplexity,
                    "Also score the expected answers, each token after its prompt and the tokens before it (prefill)");
  command->add_flag("--json", flags->json, "Scores as JSON");
  command->add_option("--compare", flags->compare_file,
                      "What --json printed in an earlier run over the same questions: prints the differences to it");
  command->add_option("--answers", flags->answers_file,
                      "File for the answers: one JSON line per question, in the order of the questions");
  commands.push_back({command, [flags] { return Eval(*flags); }});
}

}  // namespace moestro::cli
