#include "services/cli/client/eval/suite.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

constexpr char kNextQuestion[] = "Question:";  // where a text's continuation ends

char LetterOf(size_t option) { return static_cast<char>('A' + option); }
bool IsChoice(char c) { return c >= 'A' && c <= LetterOf(kMostOptions - 1); }

// MMLU-Pro's question, up to where the answer begins.
std::string ProQuestion(const ChoiceQuestion& question) {
  std::string text = absl::StrCat("Question:\n", question.question, "\nOptions:\n");
  for (size_t i = 0; i < question.options.size(); ++i) {
    absl::StrAppend(&text, std::string(1, LetterOf(i)), ". ", question.options[i], "\n");
  }
  return text;
}

std::string ProPrompt(const ChoiceQuestion& question, const std::vector<const ChoiceQuestion*>& examples) {
  std::string prompt = absl::StrCat(
      "The following are multiple choice questions (with answers) about ", question.subject,
      ". Think step by step and then finish your answer with \"the answer is (X)\" where X is the correct letter "
      "choice.\n\n\n");
  for (const ChoiceQuestion* example : examples) {
    // The published reasoning begins with "A: ".
    absl::string_view reasoning = example->reasoning;
    if (absl::StartsWith(reasoning, "A: ")) reasoning.remove_prefix(3);
    absl::StrAppend(&prompt, ProQuestion(*example), "Answer: ", reasoning, "\n\n");
  }
  return absl::StrCat(prompt, ProQuestion(question), "Answer: Let's think step by step.");
}

std::string ReduxPrompt(const ChoiceQuestion& question) {
  std::string choices;
  for (size_t i = 0; i < question.options.size(); ++i) {
    absl::StrAppend(&choices, "- (", std::string(1, LetterOf(i)), ") ", question.options[i], "\n");
  }
  return absl::StrCat(
      "\n## Question: \n\n", question.question, "\n\n## Choices:\n\n", choices,
      "\n\n## Instruction \n\n"
      "Please answer this question by first reasoning and then selecting the correct choice. \n"
      "Present your reasoning and solution in the following json format. \n"
      "Please show your choice in the `answer` field with only the choice letter, e.g.,`\"answer\": \"C\"`.\n\n"
      "```json\n{\n    \"reasoning\": \"___\",\n    \"answer\": \"___\"\n}\n```\n");
}

// The letter behind blanks and perhaps a bracket.
std::optional<char> LetterAt(std::string_view text, size_t at, bool blanks) {
  while (blanks && at < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[at]))) ++at;
  if (!blanks && at < text.size() && text[at] == '(') ++at;
  return at < text.size() && IsChoice(text[at]) ? std::optional(text[at]) : std::nullopt;
}

// answer is \(?([A-J])\)?
std::optional<char> AfterAnswerIs(std::string_view text) {
  constexpr std::string_view kBefore = "answer is ";
  for (size_t at = text.find(kBefore); at != text.npos; at = text.find(kBefore, at + 1)) {
    if (const auto letter = LetterAt(text, at + kBefore.size(), /*blanks=*/false)) return letter;
  }
  return std::nullopt;
}

// .*[aA]nswer:\s*([A-J]): the last one of the first line that has one.
std::optional<char> AfterAnswerColon(std::string_view text) {
  constexpr std::string_view kBefore = "nswer:";
  std::optional<char> found;
  size_t line_end = 0;
  for (size_t at = text.find(kBefore); at != text.npos; at = text.find(kBefore, at + 1)) {
    if (found && at > line_end) break;
    if (at == 0 || (text[at - 1] != 'a' && text[at - 1] != 'A')) continue;
    const auto letter = LetterAt(text, at + kBefore.size(), /*blanks=*/true);
    if (!letter) continue;
    found = letter;
    line_end = std::min(text.find('\n', at), text.size());
  }
  return found;
}

std::optional<char> LastAlone(std::string_view text) {
  const auto in_word = [&](size_t i) {
    return i < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_' ||
                               static_cast<unsigned char>(text[i]) >= 0x80);
  };
  for (size_t i = text.size(); i-- > 0;) {
    if (IsChoice(text[i]) && (i == 0 || !in_word(i - 1)) && !in_word(i + 1)) return text[i];
  }
  return std::nullopt;
}

// The value of the last "answer" of a JSON text: the reasoning may quote the form before.
std::optional<char> JsonAnswer(std::string_view text) {
  constexpr std::string_view kKey = "\"answer\"";
  std::optional<char> found;
  for (size_t at = text.find(kKey); at != text.npos; at = text.find(kKey, at + 1)) {
    absl::string_view rest(text.data() + at + kKey.size(), text.size() - at - kKey.size());
    const auto skip = [&](char c) {
      rest = absl::StripLeadingAsciiWhitespace(rest);
      if (rest.empty() || rest[0] != c) return false;
      rest.remove_prefix(1);
      return true;
    };
    if (!skip(':') || !skip('"')) continue;
    if (const auto letter = LetterAt({rest.data(), rest.size()}, 0, /*blanks=*/false)) found = letter;
  }
  return found;
}

}  // namespace

absl::StatusOr<std::vector<Question>> SuiteQuestions(Suite suite, const std::vector<ChoiceQuestion>& questions,
                                                     const std::vector<ChoiceQuestion>& examples, bool chat) {
  std::map<std::string, std::vector<const ChoiceQuestion*>> by_subject;
  for (const ChoiceQuestion& example : examples) {
    std::vector<const ChoiceQuestion*>& of_subject = by_subject[example.subject];
    if (!example.reasoning.empty() && of_subject.size() < kShots) of_subject.push_back(&example);
  }
  std::vector<Question> asked;
  for (const ChoiceQuestion& question : questions) {
    Question& added = asked.emplace_back();
    added.task = question.subject;
    added.answer = question.answer;
    std::string prompt;
    if (suite == Suite::kMmluRedux) {
      prompt = ReduxPrompt(question);
    } else {
      const std::vector<const ChoiceQuestion*>& shots = by_subject[question.subject];
      if (shots.size() < kShots) {
        return absl::InvalidArgumentError(absl::StrCat("subject '", question.subject, "' has ", shots.size(),
                                                       " examples with 'cot_content', and the suite shows ", kShots));
      }
      prompt = ProPrompt(question, shots);
    }
    if (chat) {
      v1::ChatMessage& message = *added.request.mutable_chat()->add_messages();
      message.set_role("user");
      message.set_content(std::move(prompt));
    } else {
      added.request.set_prompt(std::move(prompt));
      if (suite == Suite::kMmluPro) added.request.add_stop(kNextQuestion);
    }
  }
  return asked;
}

std::optional<char> ChosenLetter(Suite suite, std::string_view answer) {
  if (suite == Suite::kMmluRedux) return JsonAnswer(answer);
  // Its evaluation takes emphasis away first.
  const std::string text = absl::StrReplaceAll(absl::string_view(answer.data(), answer.size()), {{"**", ""}});
  if (const auto letter = AfterAnswerIs(text)) return letter;
  if (const auto letter = AfterAnswerColon(text)) return letter;
  return LastAlone(text);
}

}  // namespace moestro::cli
