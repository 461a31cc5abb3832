#include "services/cli/client/eval/questions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::string> Text(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("field '", field, "' must be a string"));
  }
  return found->get<std::string>();
}

absl::Status ReadInput(const Json& object, v1::GenerateRequest& request) {
  const auto messages = object.find("messages");
  if (messages == object.end()) {
    MOE_ASSIGN_OR_RETURN(*request.mutable_prompt(), Text(object, "prompt"));
    return absl::OkStatus();
  }
  if (!messages->is_array() || messages->empty()) {
    return absl::InvalidArgumentError("field 'messages' must be a non-empty list");
  }
  for (const Json& message : *messages) {
    if (!message.is_object()) return absl::InvalidArgumentError("field 'messages' must hold objects");
    v1::ChatMessage& added = *request.mutable_chat()->add_messages();
    MOE_ASSIGN_OR_RETURN(*added.mutable_role(), Text(message, "role"));
    MOE_ASSIGN_OR_RETURN(*added.mutable_content(), Text(message, "content"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Question> ParseQuestion(std::string_view line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  Question question;
  MOE_ASSIGN_OR_RETURN(question.task, Text(object, "task"));
  MOE_ASSIGN_OR_RETURN(question.answer, Text(object, "answer"));
  MOE_RETURN_IF_ERROR(ReadInput(object, question.request));
  return question;
}

}  // namespace

absl::StatusOr<std::vector<Question>> ParseQuestions(std::string_view text) {
  std::vector<Question> questions;
  int number = 0;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const std::string_view line(part.data(), part.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::StatusOr<Question> question = ParseQuestion(line);
    if (!question.ok()) return Annotate(question.status(), absl::StrCat("line ", number));
    questions.push_back(*std::move(question));
  }
  if (questions.empty()) return absl::InvalidArgumentError("it has no questions");
  return questions;
}

}  // namespace moestro::cli
