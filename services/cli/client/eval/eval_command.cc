#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/eval/questions.h"
#include "services/cli/client/eval/scores.h"
#include "services/cli/client/eval/suite.h"
#include "services/cli/client/request_flags.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

constexpr char kMmluPro[] = "mmlu-pro";
constexpr char kMmluRedux[] = "mmlu-redux";

struct EvalFlags {
  ServerFlags server;
  std::string file;
  int concurrency = 4;
  int limit = 0;
  std::optional<uint32_t> max_tokens;
  float temperature = 0;
  float top_p = 1;
  std::vector<uint64_t> seeds = {0};
  bool perplexity = false;
  bool json = false;
  std::string compare_file;
  std::string answers_file;
  std::string suite_name;  // empty: a file of prompts
  std::string shots_file;
  bool plain = false;
  std::string way;

  std::optional<Suite> suite() const {
    if (suite_name.empty()) return std::nullopt;
    return suite_name == kMmluPro ? Suite::kMmluPro : Suite::kMmluRedux;
  }
  uint32_t longest_answer() const { return max_tokens.value_or(suite_name.empty() ? 64 : 4096); }
};

// Of one question.
struct Outcome {
  std::string answer;
  Scores::Expected expected;  // zero without --perplexity
};

absl::StatusOr<std::vector<ChoiceQuestion>> ReadSuite(const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  absl::StatusOr<std::vector<ChoiceQuestion>> questions =
      ParseSuite(text, absl::EndsWith(file, ".csv") ? SuiteFormat::kCsv : SuiteFormat::kJsonLines);
  MOE_RETURN_IF_ERROR(Annotate(questions.status(), file));
  return questions;
}

absl::StatusOr<std::vector<Question>> ReadSuiteQuestions(const EvalFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::vector<ChoiceQuestion> questions, ReadSuite(flags.file));
  std::vector<ChoiceQuestion> examples;
  if (*flags.suite() == Suite::kMmluPro) {
    if (flags.shots_file.empty()) {
      return absl::InvalidArgumentError(
          "--suite mmlu-pro shows five worked examples of each subject: give --shots a file of them (its validation "
          "part)");
    }
    MOE_ASSIGN_OR_RETURN(examples, ReadSuite(flags.shots_file));
  }
  absl::StatusOr<std::vector<Question>> asked = SuiteQuestions(*flags.suite(), questions, examples, !flags.plain);
  MOE_RETURN_IF_ERROR(Annotate(asked.status(), absl::StrCat("--shots ", flags.shots_file)));
  return asked;
}

absl::StatusOr<std::vector<Question>> ReadPrompts(const EvalFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file));
  absl::StatusOr<std::vector<Question>> questions = ParseQuestions(text);
  MOE_RETURN_IF_ERROR(Annotate(questions.status(), flags.file));
  return questions;
}

// Each question once for every seed.
absl::StatusOr<std::vector<Question>> ReadQuestions(const EvalFlags& flags) {
  absl::StatusOr<std::vector<Question>> questions = flags.suite() ? ReadSuiteQuestions(flags) : ReadPrompts(flags);
  MOE_RETURN_IF_ERROR(questions.status());
  // Takes evenly spaced questions, so that each task keeps its share.
  const size_t limit = flags.limit > 0 ? std::min<size_t>(flags.limit, questions->size()) : questions->size();
  std::vector<Question> chosen;
  for (size_t i = 0; i < limit; ++i) {
    for (const uint64_t seed : flags.seeds) {
      chosen.push_back((*questions)[i * questions->size() / limit]);
      chosen.back().request.set_seed(seed);
    }
  }
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
absl::StatusOr<Scores::Expected> ScoreExpected(RouterClient& client, const Question& question, v1::PromptWay way) {
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
  request.set_way(way);
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
    request.set_max_tokens(flags_.longest_answer());
    request.set_temperature(flags_.temperature);
    if (flags_.temperature > 0) request.set_top_p(flags_.top_p);
    request.set_way(WayOf(flags_.way));
    // Nothing that came another way.
    if (!flags_.way.empty()) request.set_cache_scope(absl::StrCat("eval --way ", flags_.way));
    Answer answer;
    MOE_RETURN_IF_ERROR(StreamAnswer(client, request, /*print=*/false, answer));
    outcome.answer = std::move(answer.text);
    if (!flags_.perplexity) return absl::OkStatus();
    // Decode scores nothing. Its chunks have the bits of prefill in place with --mla-form absorbed.
    const v1::PromptWay way = request.way() == v1::PROMPT_WAY_CHUNKED ? v1::PROMPT_WAY_IN_PLACE : request.way();
    MOE_ASSIGN_OR_RETURN(outcome.expected, ScoreExpected(client, question, way));
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

// What is compared with the expected answer: the text, or of a suite the letter that it chooses, or nothing.
std::string Given(const EvalFlags& flags, const Outcome& outcome) {
  if (!flags.suite()) return outcome.answer;
  const std::optional<char> letter = ChosenLetter(*flags.suite(), outcome.answer);
  return letter ? std::string(1, *letter) : std::string();
}

// Sums in the order of the questions, so that the same answers give the same bits.
Scores Score(const EvalFlags& flags, const std::vector<Question>& questions, const std::vector<Outcome>& outcomes) {
  Scores scores;
  for (size_t i = 0; i < questions.size(); ++i) {
    scores.Add(questions[i].task, Given(flags, outcomes[i]) == questions[i].answer, outcomes[i].expected);
  }
  return scores;
}

// Answers of a suite that choose nothing.
int64_t CountWithoutChoice(const EvalFlags& flags, const std::vector<Outcome>& outcomes) {
  return std::count_if(outcomes.begin(), outcomes.end(),
                       [&](const Outcome& outcome) { return Given(flags, outcome).empty(); });
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
    nlohmann::json line = {
        {"task", questions[i].task}, {"expected", questions[i].answer}, {"answer", outcomes[i].answer}};
    if (flags.suite()) line["choice"] = Given(flags, outcomes[i]);
    file << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return file.flush() ? absl::OkStatus() : CannotWriteAnswers(flags);
}

absl::Status CheckSampling(const EvalFlags& flags) {
  if (flags.temperature > 0 || flags.seeds.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("--seed: greedy answers are the same with every seed; give --temperature too");
}

absl::Status Eval(const EvalFlags& flags) {
  MOE_RETURN_IF_ERROR(CheckSampling(flags));
  MOE_ASSIGN_OR_RETURN(const std::vector<Question> questions, ReadQuestions(flags));
  MOE_ASSIGN_OR_RETURN(const std::optional<Scores> earlier, ReadEarlier(flags));
  MOE_ASSIGN_OR_RETURN(std::ofstream answers, OpenAnswers(flags));
  Examination examination(flags, questions);
  MOE_RETURN_IF_ERROR(examination.Run());
  const std::vector<Outcome> outcomes = examination.outcomes();
  const Scores scores = Score(flags, questions, outcomes);
  const absl::Status comparable = earlier ? scores.CheckComparable(*earlier) : absl::OkStatus();
  const Scores* before = earlier && comparable.ok() ? &*earlier : nullptr;
  if (flags.json) {
    nlohmann::json json = scores.ToJson(before);
    if (flags.suite()) {
      json["suite"] = flags.suite_name;
      json["without_choice"] = CountWithoutChoice(flags, outcomes);
    }
    PrintJson(json, /*indent=*/true);
  } else {
    PrintText(scores.ToText(before));
    if (flags.suite()) {
      PrintText(absl::StrCat(CountWithoutChoice(flags, outcomes), " answers choose nothing; they count as wrong\n"));
    }
  }
  if (answers.is_open()) MOE_RETURN_IF_ERROR(WriteAnswers(flags, questions, outcomes, answers));
  return Annotate(comparable, absl::StrCat("--compare ", flags.compare_file));
}

}  // namespace

void AddEvalCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<EvalFlags>();
  FlagSet command = program.AddCommand(
      "eval", "Share of right answers over a file of questions, or over a suite such as MMLU-Pro; perplexity");
  AddServerFlags(command, flags->server);
  command
      .Add("file", flags->file,
           "One JSON object per line: task, prompt or messages, answer. With --suite JSON lines or *.csv: "
           "question, options (CSV: A, B, ...), answer, subject")
      .Required();
  Flag suite = command
                   .Add("--suite", flags->suite_name,
                        "Multiple choice, asked and read as published: MMLU-Pro with five worked examples, MMLU-Redux "
                        "without any, as ZeroEval asks it. A subject is a task")
                   .OneOf({kMmluPro, kMmluRedux});
  command
      .Add("--shots", flags->shots_file,
           "With --suite mmlu-pro: file of examples, in the suite's format, with cot_content")
      .Needs(suite);
  command.AddSwitch("--plain", flags->plain, "With --suite: the prompt is plain text, for models without chat")
      .Needs(suite);
  AddWayFlag(command, flags->way, {"chunked", "in_place", "streamed"});
  command.Add("--concurrency", flags->concurrency, "Questions at a time").Range(1, 256);
  command.Add("--limit", flags->limit, "Ask only this many, evenly spaced; 0: all").NonNegative();
  command.Add("--max-tokens", flags->max_tokens, "Longest answer; default: 64, with --suite 4096").Range(1, 1 << 16);
  command.Add("--temperature", flags->temperature, "0: greedy").Range(0.0, 2.0);
  command.Add("--top-p", flags->top_p, "With --temperature: smallest set of tokens of this probability")
      .Range(1e-6, 1.0);
  command.Add("--seed", flags->seeds, "With --temperature: each question is asked once with every seed").Delimiter(',');
  command
      .AddSwitch("--perplexity", flags->perplexity,
                 "Also score the expected answers, each token after its prompt and the tokens before it (prefill)")
      .Excludes(suite);
  command.AddSwitch("--json", flags->json, "Scores as JSON");
  command.Add("--compare", flags->compare_file,
              "What --json printed in an earlier run over the same questions: prints the differences to it");
  command.Add("--answers", flags->answers_file,
              "File for the answers: one JSON line per question, in the order of the questions");
  commands.push_back({command, [flags] { return Eval(*flags); }});
}

}  // namespace moestro::cli
