#include "common/text/grammar/schema_strings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/intersection.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/pattern.h"
#include "common/text/grammar/schema_keywords.h"
#include "common/text/grammar/string_formats.h"

namespace moestro::text::grammar {
namespace {

// Beyond the context of any model.
constexpr double kMostCount = 0x1p26;

absl::StatusOr<std::optional<double>> CountOf(const Schema& schema, const char* keyword, const std::string& where) {
  const Schema* value = Find(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || number != std::trunc(number)) return SchemaError(Under(where, keyword), "is not a count");
  return number;
}

// A keyword's text, or those of several schemas that were merged.
absl::StatusOr<std::vector<std::string>> TextsOf(const Schema& schema, const char* keyword, const std::string& where) {
  std::vector<std::string> texts;
  const Schema* value = Find(schema, keyword);
  if (value == nullptr) return texts;
  for (const Schema& one : value->is_array() ? *value : Schema::array({*value})) {
    if (!one.is_string()) return SchemaError(where, "pattern or format is not a string");
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

}  // namespace

absl::StatusOr<Counts> CountsOf(const Schema& schema, const char* least, const char* most, const std::string& where) {
  MOE_ASSIGN_OR_RETURN(const std::optional<double> min, CountOf(schema, least, where));
  MOE_ASSIGN_OR_RETURN(const std::optional<double> max, CountOf(schema, most, where));
  if (min.value_or(0) > static_cast<double>(kMaxRepetitions)) {
    return SchemaError(Under(where, least), Concat("above ", kMaxRepetitions, " cannot be enforced"));
  }
  if (max.has_value() && *max < min.value_or(0)) return SchemaError(where, Concat(most, " is below ", least));
  return Counts{static_cast<uint32_t>(min.value_or(0)),
                max.has_value() ? static_cast<uint32_t>(std::min(*max, kMostCount)) : Grammar::kUnbounded};
}

absl::StatusOr<NodeId> SchemaStrings::Parse(const Expression& expression, Grammar* grammar) {
  return ParsePattern(expression.text, {.anywhere = expression.anywhere, .write = &JsonText::Character}, grammar);
}

absl::StatusOr<Automaton> SchemaStrings::CompileExpression(const Expression& expression) {
  Grammar grammar;
  const RuleId root = grammar.AddRule("(expression)");
  MOE_ASSIGN_OR_RETURN(const NodeId body, Parse(expression, &grammar));
  grammar.Define(root, body);
  return Automaton::Compile(grammar, budget_);
}

// Characters are written in one way only, so what is in several sets of texts is spelled alike in all.
absl::StatusOr<Grammar> SchemaStrings::Intersection(const Wanted& wanted) {
  MOE_ASSIGN_OR_RETURN(Automaton all, CompileExpression(wanted.expressions[0]));
  std::optional<Grammar> common;
  const auto add = [&](const Automaton& other) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(common, Intersect(all, other, budget_));
    MOE_ASSIGN_OR_RETURN(all, Automaton::Compile(*common, budget_));
    return absl::OkStatus();
  };
  for (size_t i = 1; i < wanted.expressions.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const Automaton other, CompileExpression(wanted.expressions[i]));
    MOE_RETURN_IF_ERROR(add(other));
  }
  if (wanted.HasLength()) {
    const Counts& length = wanted.length;
    uint32_t max = length.max;
    if (max != Grammar::kUnbounded) {
      const int64_t states = all.state_count();
      const int64_t most = std::max(counted_left_ / 2, kLeastCounted) / states;
      max = std::max(length.min, static_cast<uint32_t>(std::min<int64_t>(max, most)));
      counted_left_ = std::max<int64_t>(counted_left_ - states * max, 0);
    }
    Grammar counted;
    const NodeId character = JsonText::Character(counted, CodePointSet::All());
    counted.AddRule("(length)", counted.Repeat(character, length.min, max));
    MOE_ASSIGN_OR_RETURN(const Automaton other, Automaton::Compile(counted, budget_));
    MOE_RETURN_IF_ERROR(add(other));
  }
  return *std::move(common);
}

absl::StatusOr<NodeId> SchemaStrings::Content(const Wanted& wanted) {
  if (wanted.expressions.empty()) return json_.Characters(wanted.length.min, wanted.length.max);
  if (wanted.expressions.size() == 1 && !wanted.HasLength()) return Parse(wanted.expressions[0], &json_.grammar());
  if (const auto found = intersections_.find(wanted); found != intersections_.end()) return found->second;
  MOE_ASSIGN_OR_RETURN(const Grammar all, Intersection(wanted));
  return intersections_[wanted] = json_.grammar().Import(all);
}

absl::StatusOr<NodeId> SchemaStrings::Compile(const Schema& schema, const std::string& where) {
  Wanted wanted;
  MOE_ASSIGN_OR_RETURN(wanted.length, CountsOf(schema, "minLength", "maxLength", where));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, TextsOf(schema, "pattern", where));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> formats, TextsOf(schema, "format", where));
  std::vector<Expression> known;
  for (const std::string& format : formats) {
    std::string expression = FormatPattern(format);
    if (!expression.empty()) known.push_back({std::move(expression), /*anywhere=*/false});
  }
  for (const std::string& pattern : patterns) {
    Grammar scratch;
    const absl::Status status = Parse({pattern, /*anywhere=*/true}, &scratch).status();
    // A library writes what it checks a format with, and the format itself is enforced then.
    if (absl::IsUnimplemented(status) && !known.empty()) continue;
    if (!status.ok()) {
      return absl::InvalidArgumentError(Concat("schema: ", where, "/pattern: ", std::string(status.message())));
    }
    wanted.expressions.push_back({pattern, /*anywhere=*/true});
  }
  const size_t read = wanted.expressions.size();
  wanted.expressions.insert(wanted.expressions.end(), known.begin(), known.end());
  if (wanted.expressions.empty() && !wanted.HasLength()) return json_.String();
  absl::StatusOr<NodeId> content = Content(wanted);
  if (absl::IsNotFound(content.status()) && !known.empty()) {
    wanted.expressions.resize(read);
    content = Content(wanted);
  }
  if (absl::IsNotFound(content.status())) return SchemaError(where, "no text fits pattern, format and length");
  if (!content.ok()) return Annotate(content.status(), Concat("schema: ", where));
  return json_.StringOf(*content);
}

}  // namespace moestro::text::grammar
