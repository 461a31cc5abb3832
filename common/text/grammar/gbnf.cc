#include "common/text/grammar/gbnf.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/json_schema.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/pattern.h"
#include "common/text/grammar/text_cursor.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"

namespace moestro::text::grammar {
namespace {

class GbnfParser {
 public:
  GbnfParser(std::string_view text, CompileBudget& budget) : cursor_(text), budget_(budget) {}

  absl::StatusOr<Grammar> Parse() {
    RuleNamed("root");
    SkipSpace(/*lines=*/true);
    while (!cursor_.AtEnd()) MOE_RETURN_IF_ERROR(ParseRule());
    for (const auto& [name, rule] : rules_) {
      if (grammar_.rules()[rule].body >= 0) continue;
      if (name == "root") return absl::InvalidArgumentError("grammar: has no rule 'root'");
      return AtLine(first_use_.at(rule), Concat("rule ", Quoted(name), " is not defined"));
    }
    return std::move(grammar_);
  }

 private:
  static absl::Status AtLine(int line, std::string_view what) {
    return absl::InvalidArgumentError(Concat("grammar line ", line, ": ", what));
  }
  absl::Status Error(std::string_view what) { return AtLine(cursor_.line(), what); }
  absl::Status Unexpected(std::string_view wanted) {
    if (cursor_.AtEnd()) return Error(Concat("expected ", wanted, ", not the end"));
    const size_t end = Utf8Length(cursor_.Peek());
    return Error(Concat("expected ", wanted, ", not ", Quoted(cursor_.Rest().substr(0, end))));
  }

  // White space and comments; of lines only if asked.
  void SkipSpace(bool lines) {
    while (!cursor_.AtEnd()) {
      const char c = cursor_.Peek();
      if (c == '#') {
        cursor_.Advance(std::min(cursor_.Rest().find('\n'), cursor_.Rest().size()));
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        cursor_.Advance(1);
      } else {
        return;
      }
    }
  }

  RuleId RuleNamed(std::string_view name) {
    const auto [entry, added] = rules_.try_emplace(std::string(name), 0);
    if (added) {
      entry->second = grammar_.AddRule(std::string(name));
      first_use_[entry->second] = cursor_.line();
    }
    return entry->second;
  }

  absl::Status ParseRule() {
    const int line = cursor_.line();
    const std::string name(cursor_.TakeName());
    if (name.empty()) return Unexpected("the name of a rule");
    SkipSpace(/*lines=*/false);
    if (!cursor_.Skip("::=")) return Unexpected("'::='");
    const RuleId rule = RuleNamed(name);
    if (grammar_.rules()[rule].body >= 0) return AtLine(line, Concat("rule ", Quoted(name), " is defined twice"));
    if (rules_.size() > kMaxRules) return Error(Concat("over ", kMaxRules, " rules"));
    SkipSpace(/*lines=*/true);
    MOE_ASSIGN_OR_RETURN(const NodeId body, ParseAlternatives(/*nesting=*/0));
    grammar_.Define(rule, body);
    if (!cursor_.AtEnd() && cursor_.Peek() != '\n' && cursor_.Peek() != '\r') return Unexpected("the end of the line");
    SkipSpace(/*lines=*/true);
    return absl::OkStatus();
  }

  // Inside parentheses lines do not count. Outside, a line may begin with "|".
  absl::StatusOr<NodeId> ParseAlternatives(int nesting) {
    if (nesting > kMaxNesting) return Error(Concat("groups are nested deeper than ", kMaxNesting));
    std::vector<NodeId> alternatives;
    while (true) {
      MOE_ASSIGN_OR_RETURN(const NodeId sequence, ParseSequence(nesting));
      alternatives.push_back(sequence);
      const TextCursor here = cursor_;
      SkipSpace(/*lines=*/true);
      if (!cursor_.Skip("|")) {
        if (nesting == 0) cursor_ = here;
        break;
      }
      SkipSpace(/*lines=*/true);
    }
    return alternatives.size() == 1 ? alternatives[0] : grammar_.Alternatives(std::move(alternatives));
  }

  absl::StatusOr<NodeId> ParseSequence(int nesting) {
    std::vector<NodeId> items;
    while (!cursor_.AtEnd()) {
      const char c = cursor_.Peek();
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      MOE_ASSIGN_OR_RETURN(NodeId item, ParseItem(nesting));
      SkipSpace(/*lines=*/nesting > 0);
      MOE_ASSIGN_OR_RETURN(item, ParseRepetitions(item, nesting));
      items.push_back(item);
    }
    return items.size() == 1 ? items[0] : grammar_.Sequence(std::move(items));
  }

  absl::StatusOr<NodeId> ParseItem(int nesting) {
    if (cursor_.Skip("\"")) return ParseLiteral();
    if (cursor_.Skip("[")) return ParseClass();
    if (cursor_.Skip(".")) return grammar_.Class(CodePointSet::All());
    if (cursor_.Skip("(")) {
      const int line = cursor_.line();
      SkipSpace(/*lines=*/true);
      MOE_ASSIGN_OR_RETURN(const NodeId group, ParseAlternatives(nesting + 1));
      if (!cursor_.Skip(")")) return AtLine(line, "'(' without ')'");
      return group;
    }
    if (cursor_.Peek() == '<') return ParseToken();
    if (cursor_.Skip("%")) return ParseDirective();
    if (cursor_.Peek() == '!') return Error("tokens other than one are not supported");
    const std::string_view name = cursor_.TakeName();
    if (name.empty()) return Unexpected("a literal, a class, a group or the name of a rule");
    return grammar_.Call(RuleNamed(name));
  }

  absl::StatusOr<NodeId> ParseRepetitions(NodeId item, int nesting) {
    for (int count = 0;; ++count) {
      if (cursor_.Skip("*")) {
        item = grammar_.Repeat(item, 0, Grammar::kUnbounded);
      } else if (cursor_.Skip("+")) {
        item = grammar_.Repeat(item, 1, Grammar::kUnbounded);
      } else if (cursor_.Skip("?")) {
        item = grammar_.Optional(item);
      } else if (cursor_.Skip("{")) {
        MOE_ASSIGN_OR_RETURN(item, ParseCounts(item));
      } else {
        return item;
      }
      if (count == kMaxNesting) return Error("too many repetitions of repetitions");
      SkipSpace(/*lines=*/nesting > 0);
    }
  }

  absl::StatusOr<NodeId> ParseCounts(NodeId item) {
    const auto space = [&] { SkipSpace(/*lines=*/false); };
    space();
    const std::optional<int64_t> min = cursor_.TakeNumber();
    space();
    const bool is_range = cursor_.Skip(",");
    space();
    const std::optional<int64_t> max = is_range ? cursor_.TakeNumber() : min;
    space();
    if (!cursor_.Skip("}") || (!min.has_value() && !max.has_value())) return Unexpected("a count such as {2,5}");
    const int64_t least = min.value_or(0);
    if (std::max(least, max.value_or(0)) > kMaxRepetitions) {
      return Error(Concat("more than ", kMaxRepetitions, " repetitions"));
    }
    if (max.has_value() && *max < least) return Error("the most repetitions are fewer than the least");
    return grammar_.Repeat(item, least, max.has_value() ? static_cast<uint32_t>(*max) : Grammar::kUnbounded);
  }

  // A character of a literal or class, which may be escaped.
  absl::StatusOr<char32_t> TakeCharacter() {
    if (cursor_.AtEnd() || cursor_.Peek() == '\n') return Unexpected("the end of the literal or class");
    if (!cursor_.Skip("\\")) return cursor_.TakeCodePoint();
    const char escape = cursor_.Peek();
    cursor_.Advance(1);
    std::optional<char32_t> value;
    switch (escape) {
      case 'x':
        value = cursor_.TakeHex(2);
        break;
      case 'u':
        value = cursor_.TakeHex(4);
        break;
      case 'U':
        value = cursor_.TakeHex(8);
        break;
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case 'n':
        return U'\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(escape);
      default:
        break;
    }
    if (!value.has_value() || !IsScalarValue(*value)) return Error("malformed escape in a literal or class");
    return *value;
  }

  // <name>: the token of that text, with its brackets.
  absl::StatusOr<NodeId> ParseToken() {
    const size_t end = cursor_.Rest().find_first_of(">\n");
    if (end == std::string_view::npos || cursor_.Rest()[end] != '>') return Error("'<' without '>'");
    const std::string text(cursor_.Rest().substr(0, end + 1));
    if (text[1] == '[') return Error("tokens by their ids are not supported: write the text of the token");
    cursor_.Advance(text.size());
    return grammar_.Token(text);
  }

  // What GBNF does not have: %json {...}, and %token, %until, %without, %regex and %grammar before a
  // literal.
  absl::StatusOr<NodeId> ParseDirective() {
    const std::string name(cursor_.TakeName());
    SkipSpace(/*lines=*/false);
    if (name == "json") {
      const std::string_view schema = RawValue(cursor_.Rest());
      const int line = cursor_.line();
      cursor_.Advance(schema.size());
      return Embed(CompileJsonSchema(schema, budget_), line);
    }
    const bool is_known =
        name == "token" || name == "until" || name == "without" || name == "regex" || name == "grammar";
    if (!is_known) return Error(Concat("%", name, " is none of %json, %token, %until, %without, %regex and %grammar"));
    const int line = cursor_.line();
    if (!cursor_.Skip("\"")) return Unexpected(Concat("a literal after %", name));
    MOE_ASSIGN_OR_RETURN(const std::string text, TakeLiteral());
    if (name == "regex") return Embed(ParseRegex(text), line);
    if (name == "grammar") return Embed(ParseGbnf(text, budget_), line);
    if (text.empty()) return AtLine(line, Concat("the text after %", name, " is empty"));
    if (name == "token") return grammar_.Token(text);
    if (text.size() > kMaxUntilBytes) return AtLine(line, Concat("over ", kMaxUntilBytes, " bytes after %", name));
    return name == "until" ? grammar_.Until(text) : grammar_.Without(text);
  }

  absl::StatusOr<NodeId> Embed(const absl::StatusOr<Grammar>& other, int line) {
    if (!other.ok()) return Annotate(other.status(), Concat("grammar line ", line));
    if (grammar_.nodes().size() + other->nodes().size() > kMaxStates) return AtLine(line, "the grammar is too large");
    return grammar_.Import(*other);
  }

  absl::StatusOr<NodeId> ParseLiteral() {
    MOE_ASSIGN_OR_RETURN(std::string text, TakeLiteral());
    return grammar_.Bytes(std::move(text));
  }

  // Behind its first quote.
  absl::StatusOr<std::string> TakeLiteral() {
    std::string bytes;
    while (!cursor_.Skip("\"")) {
      MOE_ASSIGN_OR_RETURN(const char32_t character, TakeCharacter());
      AppendUtf8(character, &bytes);
    }
    return bytes;
  }

  absl::StatusOr<NodeId> ParseClass() {
    const bool is_negated = cursor_.Skip("^");
    std::vector<CodePointSet::Range> ranges;
    while (!cursor_.Skip("]")) {
      MOE_ASSIGN_OR_RETURN(const char32_t first, TakeCharacter());
      char32_t last = first;
      if (cursor_.Peek() == '-' && !cursor_.Rest().starts_with("-]")) {
        cursor_.Advance(1);
        MOE_ASSIGN_OR_RETURN(last, TakeCharacter());
        if (last < first) return Error("a range of a class ends before it begins");
      }
      ranges.push_back({first, last});
    }
    const CodePointSet set(std::move(ranges));
    return grammar_.Class(is_negated ? set.Complement() : set);
  }

  TextCursor cursor_;
  CompileBudget& budget_;
  Grammar grammar_;
  std::map<std::string, RuleId, std::less<>> rules_;
  std::map<RuleId, int> first_use_;  // line
};

}  // namespace

absl::StatusOr<Grammar> ParseGbnf(std::string_view text, CompileBudget& budget) {
  if (const auto offset = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(Concat("grammar: invalid UTF-8 at byte ", *offset));
  }
  return GbnfParser(text, budget).Parse();
}

}  // namespace moestro::text::grammar
