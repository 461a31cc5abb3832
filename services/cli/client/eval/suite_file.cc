#include "services/cli/client/eval/suite_file.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::json;

absl::Status Wrong(const char* field, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("field '", field, "' must be ", what));
}

absl::StatusOr<std::string> TextOf(const Json& object, const char* field, const char* instead = nullptr) {
  auto found = object.find(field);
  if (found == object.end() && instead != nullptr) found = object.find(instead);
  if (found == object.end() || !found->is_string()) return Wrong(field, "a string");
  return found->get<std::string>();
}

// "C", or an index from 0.
absl::StatusOr<char> Letter(std::string_view text, size_t options) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  int64_t index = 0;
  if (!absl::SimpleAtoi(stripped, &index)) index = stripped.size() == 1 ? stripped[0] - 'A' : -1;
  if (index < 0 || index >= static_cast<int64_t>(options)) {
    return Wrong("answer", "the letter of an option, or its index from 0");
  }
  return static_cast<char>('A' + index);
}

absl::Status CheckOptions(const ChoiceQuestion& question) {
  return question.options.size() < 2 || question.options.size() > kMostOptions ? Wrong("options", "2 to 10 texts")
                                                                               : absl::OkStatus();
}

absl::StatusOr<ChoiceQuestion> ParseObject(std::string_view line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  ChoiceQuestion question;
  MOE_ASSIGN_OR_RETURN(question.question, TextOf(object, "question"));
  MOE_ASSIGN_OR_RETURN(question.subject, TextOf(object, "subject", "category"));
  const Json& options = object.contains("options") ? object["options"] : object.value("choices", Json());
  if (!options.is_array()) return Wrong("options", "a list of texts");
  for (const Json& option : options) {
    if (!option.is_string()) return Wrong("options", "a list of texts");
    question.options.push_back(option.get<std::string>());
  }
  MOE_RETURN_IF_ERROR(CheckOptions(question));
  const Json answer = object.value("answer", Json());
  if (!answer.is_string() && !answer.is_number_integer()) return Letter("", 0).status();
  MOE_ASSIGN_OR_RETURN(question.answer,
                       Letter(answer.is_string() ? answer.get<std::string>() : answer.dump(), question.options.size()));
  if (object.contains("cot_content")) {
    MOE_ASSIGN_OR_RETURN(question.reasoning, TextOf(object, "cot_content"));
  }
  return question;
}

absl::StatusOr<std::vector<ChoiceQuestion>> ParseJsonLines(absl::string_view text) {
  std::vector<ChoiceQuestion> questions;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<ChoiceQuestion> question = ParseObject({line.data(), line.size()});
    if (!question.ok()) return Annotate(question.status(), absl::StrCat("line ", number));
    questions.push_back(*std::move(question));
  }
  return questions;
}

struct Record {
  int line = 0;  // of its first character
  std::vector<std::string> fields;
};

// RFC 4180: fields in quotes may have commas, line ends and doubled quotes.
absl::StatusOr<std::vector<Record>> ParseRecords(std::string_view text) {
  std::vector<Record> records;
  int line = 1;
  size_t i = 0;
  while (i < text.size()) {
    Record record{.line = line, .fields = {""}};
    bool ended = false;
    while (i < text.size() && !ended) {
      if (text[i] == '"' && record.fields.back().empty()) {
        size_t end = i + 1;
        for (; end < text.size(); ++end) {
          if (text[end] == '\n') ++line;
          if (text[end] == '"' && (end + 1 == text.size() || text[end + 1] != '"')) break;
          if (text[end] == '"') ++end;
          record.fields.back() += text[end];
        }
        if (end == text.size()) {
          return absl::InvalidArgumentError(absl::StrCat("line ", record.line, ": a quote does not end"));
        }
        i = end + 1;
      } else if (text[i] == ',') {
        record.fields.emplace_back();
        ++i;
      } else if (text[i] == '\n') {
        ++line;
        ++i;
        ended = true;
      } else {
        if (text[i] != '\r') record.fields.back() += text[i];
        ++i;
      }
    }
    if (record.fields.size() > 1 || !record.fields[0].empty()) records.push_back(std::move(record));
  }
  return records;
}

absl::StatusOr<std::vector<ChoiceQuestion>> ParseCsv(std::string_view text) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Record> records, ParseRecords(text));
  if (records.empty()) return std::vector<ChoiceQuestion>();
  std::map<std::string, size_t> columns;
  for (size_t i = 0; i < records[0].fields.size(); ++i) columns[records[0].fields[i]] = i;
  const auto column = [&](const std::string& name) -> std::optional<size_t> {
    const auto found = columns.find(name);
    return found == columns.end() ? std::nullopt : std::optional(found->second);
  };
  const std::optional<size_t> subject = column("subject") ? column("subject") : column("category");
  for (const char* name : {"question", "A", "B", "answer"}) {
    if (!column(name)) return absl::InvalidArgumentError(absl::StrCat("line 1 names no column '", name, "'"));
  }
  if (!subject) return absl::InvalidArgumentError("line 1 names no column 'subject'");
  std::vector<ChoiceQuestion> questions;
  for (size_t r = 1; r < records.size(); ++r) {
    const auto& [line, fields] = records[r];
    const std::string where = absl::StrCat("line ", line);
    if (fields.size() != records[0].fields.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has ", fields.size(), " fields, and line 1 has ", records[0].fields.size()));
    }
    ChoiceQuestion question{.subject = fields[*subject], .question = fields[*column("question")], .options = {}};
    for (size_t option = 0; option < kMostOptions; ++option) {
      const std::optional<size_t> at = column(std::string(1, static_cast<char>('A' + option)));
      if (at) question.options.push_back(fields[*at]);
    }
    while (!question.options.empty() && question.options.back().empty()) question.options.pop_back();
    MOE_RETURN_IF_ERROR(Annotate(CheckOptions(question), where));
    absl::StatusOr<char> answer = Letter(fields[*column("answer")], question.options.size());
    MOE_RETURN_IF_ERROR(Annotate(answer.status(), where));
    question.answer = *answer;
    if (column("cot_content")) question.reasoning = fields[*column("cot_content")];
    questions.push_back(std::move(question));
  }
  return questions;
}

}  // namespace

absl::StatusOr<std::vector<ChoiceQuestion>> ParseSuite(std::string_view text, SuiteFormat format) {
  MOE_ASSIGN_OR_RETURN(std::vector<ChoiceQuestion> questions,
                       format == SuiteFormat::kCsv ? ParseCsv(text) : ParseJsonLines({text.data(), text.size()}));
  if (questions.empty()) return absl::InvalidArgumentError("it has no questions");
  return questions;
}

}  // namespace moestro::cli
