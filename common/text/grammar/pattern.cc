#include "common/text/grammar/pattern.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/text_cursor.h"

namespace moestro::text::grammar {
namespace {

using Range = CodePointSet::Range;

CodePointSet Digits() { return CodePointSet({{'0', '9'}}); }
CodePointSet WordCharacters() { return CodePointSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}}); }
// ECMA-262: WhiteSpace and LineTerminator.
CodePointSet Spaces() {
  return CodePointSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}
CodePointSet LineTerminators() { return CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

CodePointSet One(char32_t code_point) { return CodePointSet({{code_point, code_point}}); }

class PatternParser {
 public:
  PatternParser(std::string_view pattern, const PatternOptions& options, Grammar* grammar)
      : cursor_(pattern), options_(options), grammar_(*grammar) {}

  absl::StatusOr<NodeId> Parse() {
    std::vector<NodeId> alternatives;
    do {
      MOE_ASSIGN_OR_RETURN(const NodeId alternative, ParseWholeAlternative());
      alternatives.push_back(alternative);
    } while (cursor_.Skip("|"));
    if (!cursor_.AtEnd()) return Error("')' without '('");
    return grammar_.Alternatives(std::move(alternatives));
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(Concat("regular expression at byte ", cursor_.position(), ": ", what));
  }

  absl::Status Unsupported(std::string_view what) const { return absl::UnimplementedError(Error(what).message()); }

  NodeId Write(const CodePointSet& set) { return options_.write(grammar_, set); }
  NodeId AnyText() {
    if (any_text_ < 0) any_text_ = grammar_.Repeat(Write(CodePointSet::All()), 0, Grammar::kUnbounded);
    return any_text_;
  }

  absl::StatusOr<NodeId> ParseWholeAlternative() {
    std::vector<NodeId> parts;
    const bool begins = cursor_.Skip("^");
    if (options_.anywhere && !begins) parts.push_back(AnyText());
    MOE_ASSIGN_OR_RETURN(const NodeId body, ParseSequence(/*nesting=*/0));
    parts.push_back(body);
    const bool ends = cursor_.Skip("$");
    if (options_.anywhere && !ends) parts.push_back(AnyText());
    if (ends && !cursor_.AtEnd() && cursor_.Peek() != '|') return Unsupported("nothing can follow '$'");
    return grammar_.Sequence(std::move(parts));
  }

  absl::StatusOr<NodeId> ParseGroup(int nesting) {
    if (nesting > kMaxNesting) return Error(Concat("groups are nested deeper than ", kMaxNesting));
    if (cursor_.Skip("?") && !cursor_.Skip(":")) {
      // Python writes (?P<name>...).
      if (cursor_.Rest().starts_with("P<")) cursor_.Advance(1);
      const bool named =
          cursor_.Peek() == '<' && !cursor_.Rest().starts_with("<=") && !cursor_.Rest().starts_with("<!");
      if (!named) return Unsupported("look-around and flags are not supported");
      const size_t end = cursor_.Rest().find('>');
      if (end == std::string_view::npos) return Error("the name of a group without '>'");
      cursor_.Advance(end + 1);
    }
    std::vector<NodeId> alternatives;
    do {
      MOE_ASSIGN_OR_RETURN(const NodeId sequence, ParseSequence(nesting));
      alternatives.push_back(sequence);
    } while (cursor_.Skip("|"));
    if (cursor_.Peek() == '$') return Unsupported("'$' is supported at the end of the whole expression only");
    if (!cursor_.Skip(")")) return Error("'(' without ')'");
    return grammar_.Alternatives(std::move(alternatives));
  }

  // Up to "|", ")", "$" or the end.
  absl::StatusOr<NodeId> ParseSequence(int nesting) {
    std::vector<NodeId> items;
    while (!cursor_.AtEnd() && cursor_.Peek() != '|' && cursor_.Peek() != ')' && cursor_.Peek() != '$') {
      MOE_ASSIGN_OR_RETURN(const NodeId atom, ParseAtom(nesting));
      MOE_ASSIGN_OR_RETURN(const NodeId item, ParseRepetition(atom));
      items.push_back(item);
    }
    return items.size() == 1 ? items[0] : grammar_.Sequence(std::move(items));
  }

  absl::StatusOr<NodeId> ParseAtom(int nesting) {
    const char c = cursor_.Peek();
    switch (c) {
      case '(':
        cursor_.Advance(1);
        return ParseGroup(nesting + 1);
      case '[': {
        cursor_.Advance(1);
        MOE_ASSIGN_OR_RETURN(const CodePointSet set, ParseClass());
        return Write(set);
      }
      case '.':
        cursor_.Advance(1);
        return Write(LineTerminators().Complement());
      case '\\': {
        cursor_.Advance(1);
        MOE_ASSIGN_OR_RETURN(const CodePointSet set, ParseEscape(/*in_class=*/false));
        return Write(set);
      }
      case '^':
        return Unsupported("'^' is supported at the beginning of the whole expression only");
      case '*':
      case '+':
      case '?':
        return Error(Concat("'", std::string(1, c), "' has nothing to repeat"));
      case '{':
      case '}':
      case ']':
        return Error(Concat("'", std::string(1, c), "' must be written with a '\\' before it"));
      default:
        return Write(One(cursor_.TakeCodePoint()));
    }
  }

  absl::StatusOr<NodeId> ParseRepetition(NodeId atom) {
    int64_t min = 0, max = 1;
    bool unbounded = false;
    if (cursor_.Skip("*")) {
      unbounded = true;
    } else if (cursor_.Skip("+")) {
      min = 1;
      unbounded = true;
    } else if (cursor_.Skip("?")) {
    } else if (cursor_.Skip("{")) {
      const std::optional<int64_t> least = cursor_.TakeNumber();
      std::optional<int64_t> most = least;
      if (cursor_.Skip(",")) {
        most = cursor_.TakeNumber();
        unbounded = !most.has_value();
      }
      if (!least.has_value() || !cursor_.Skip("}")) return Error("expected a count such as {2,5}");
      min = *least;
      max = most.value_or(0);
      if (std::max(min, max) > kMaxRepetitions) return Error(Concat("more than ", kMaxRepetitions, " repetitions"));
      if (!unbounded && max < min) return Error("the most repetitions are fewer than the least");
    } else {
      return atom;
    }
    cursor_.Skip("?");  // lazy
    if (cursor_.Peek() == '*' || cursor_.Peek() == '+' || cursor_.Peek() == '?') {
      return Unsupported("possessive and repeated repetitions are not supported");
    }
    return grammar_.Repeat(atom, min, unbounded ? Grammar::kUnbounded : static_cast<uint32_t>(max));
  }

  // After the backslash.
  absl::StatusOr<CodePointSet> ParseEscape(bool in_class) {
    if (cursor_.AtEnd()) return Error("'\\' at the end");
    const char c = cursor_.Peek();
    const auto is_letter = [](char x) { return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z'); };
    if (!is_letter(c) && (c < '0' || c > '9')) return One(cursor_.TakeCodePoint());
    cursor_.Advance(1);
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Complement();
      case 'w':
        return WordCharacters();
      case 'W':
        return WordCharacters().Complement();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Complement();
      case 't':
        return One('\t');
      case 'n':
        return One('\n');
      case 'r':
        return One('\r');
      case 'f':
        return One('\f');
      case 'v':
        return One('\v');
      case '0':
        if (cursor_.Peek() < '0' || cursor_.Peek() > '9') return One(0);
        return Unsupported("octal escapes are not supported");
      case 'b':
        if (in_class) return One('\b');
        return Unsupported("\\b is not supported");
      case 'c':
        if (!is_letter(cursor_.Peek())) return Error("malformed \\c");
        return One(cursor_.TakeCodePoint() % 32);
      case 'x':
        if (const auto value = cursor_.TakeHex(2)) return One(*value);
        return Error("malformed \\x");
      case 'u':
        return ParseUnicodeEscape();
      default:
        return Unsupported(Concat("\\", std::string(1, c), " is not supported"));
    }
  }

  absl::StatusOr<CodePointSet> ParseUnicodeEscape() {
    std::optional<char32_t> value;
    if (cursor_.Skip("{")) {
      const size_t digits = std::min<size_t>(cursor_.Rest().find('}'), 8);
      value = cursor_.TakeHex(digits);
      if (digits == 0 || !cursor_.Skip("}")) return Error("malformed \\u");
    } else {
      value = cursor_.TakeHex(4);
      if (value.has_value() && *value >= 0xD800 && *value <= 0xDBFF && cursor_.Skip("\\u")) {
        const std::optional<char32_t> low = cursor_.TakeHex(4);
        if (!low.has_value() || *low < 0xDC00 || *low > 0xDFFF) return Error("half a surrogate pair");
        value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
      }
    }
    if (!value.has_value() || !IsScalarValue(*value)) return Error("malformed \\u");
    return One(*value);
  }

  absl::StatusOr<CodePointSet> ParseClass() {
    const bool is_negated = cursor_.Skip("^");
    std::vector<Range> ranges;
    while (!cursor_.Skip("]")) {
      MOE_ASSIGN_OR_RETURN(const CodePointSet first, ParseClassAtom());
      if (cursor_.Peek() == '-' && !cursor_.Rest().starts_with("-]")) {
        cursor_.Advance(1);
        MOE_ASSIGN_OR_RETURN(const CodePointSet last, ParseClassAtom());
        if (first.Count() != 1 || last.Count() != 1 || last.ranges()[0].first < first.ranges()[0].first) {
          return Error("malformed range of a class");
        }
        ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
      } else {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      }
    }
    const CodePointSet set(std::move(ranges));
    return is_negated ? set.Complement() : set;
  }

  absl::StatusOr<CodePointSet> ParseClassAtom() {
    if (cursor_.AtEnd()) return Error("'[' without ']'");
    if (cursor_.Skip("\\")) return ParseEscape(/*in_class=*/true);
    return One(cursor_.TakeCodePoint());
  }

  TextCursor cursor_;
  const PatternOptions& options_;
  Grammar& grammar_;
  NodeId any_text_ = -1;
};

}  // namespace

absl::StatusOr<NodeId> ParsePattern(std::string_view pattern, const PatternOptions& options, Grammar* grammar) {
  if (const auto offset = FindInvalidUtf8(pattern)) {
    return absl::InvalidArgumentError(Concat("regular expression: invalid UTF-8 at byte ", *offset));
  }
  return PatternParser(pattern, options, grammar).Parse();
}

absl::StatusOr<Grammar> ParseRegex(std::string_view pattern) {
  Grammar grammar;
  const RuleId root = grammar.AddRule("root");
  const auto write = [](Grammar& to, const CodePointSet& set) { return to.Class(set); };
  const absl::StatusOr<NodeId> body = ParsePattern(pattern, {.write = write}, &grammar);
  if (!body.ok()) return absl::InvalidArgumentError(body.status().message());
  grammar.Define(root, *body);
  return grammar;
}

}  // namespace moestro::text::grammar
