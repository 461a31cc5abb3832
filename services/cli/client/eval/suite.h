// Prompts of published suites of multiple-choice questions, and what an answer chooses. Pure: reads no file, calls no
// server.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/client/eval/questions.h"
#include "services/cli/client/eval/suite_file.h"

namespace moestro::cli {

enum class Suite {
  kMmluPro,    // MMLU-Pro's own evaluation: five worked examples of the subject, then the question
  kMmluRedux,  // as ZeroEval asks MMLU-Redux: no examples; the answer is JSON
};

// MMLU-Pro's number of examples.
inline constexpr size_t kShots = 5;

// Each question as a request, of its subject as the task and its letter as the answer. `examples`: of MMLU-Pro, in
// their order. `chat`: the prompt is a user's message; else it is a text that the model continues; with MMLU-Pro up to
// the next question. INVALID_ARGUMENT names the subject that has fewer than kShots examples with reasoning.
absl::StatusOr<std::vector<Question>> SuiteQuestions(Suite suite, const std::vector<ChoiceQuestion>& questions,
                                                     const std::vector<ChoiceQuestion>& examples, bool chat);

// The letter that an answer chooses, A to J, as the suite's own evaluation finds it. If there is none, the answer is
// wrong; MMLU-Pro's evaluation guesses then. MMLU-Pro: behind "answer is", else behind "answer:", else the last letter
// that stands alone. MMLU-Redux: the value of "answer".
std::optional<char> ChosenLetter(Suite suite, std::string_view answer);

}  // namespace moestro::cli
