// The rules of JSON text that schemas share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// White space is at most a space, or up to two line ends and 20 blanks of indentation: a model that likes blanks cannot
// emit them for ever. It stands after brackets, commas and colons, and before closing brackets.
// Numbers have at most 16 digits before and after the point and two in the exponent: all can be read as doubles.
class JsonText {
 public:
  explicit JsonText(Grammar* grammar) : grammar_(*grammar) {}

  NodeId Space();
  NodeId Value();
  NodeId Object();
  NodeId Array();
  NodeId String();
  NodeId Number();
  NodeId Integer();
  NodeId Boolean();
  NodeId Null() { return grammar_.Bytes("null"); }

  // A string whose characters are `content`, written by Character.
  NodeId StringOf(NodeId content);
  // One character of a string, if it is in `set`. Each has one spelling; of the control characters without a short one
  // (\b \f \n \r \t) only sets of up to 8 characters have any.
  static NodeId Character(Grammar& grammar, const CodePointSet& set);
  // A string that is none of these (UTF-8).
  NodeId StringExcept(const std::vector<std::string>& names);

  NodeId Pair(NodeId key, NodeId value);

  // Whole numbers from min to max. REQUIRES: min <= max.
  NodeId IntegerBetween(std::optional<int64_t> min, std::optional<int64_t> max);
  // Numbers without exponent, above or below whole bounds. Matches nothing where no number is between them.
  struct Bound {
    int64_t value;
    bool exclusive;
  };
  NodeId NumberBetween(std::optional<Bound> min, std::optional<Bound> max);

  Grammar& grammar() { return grammar_; }

 private:
  // A call of the rule of this name, which `make` defines at the first.
  template <typename Make>
  NodeId Shared(const char* name, Make make);
  NodeId Digits(uint32_t min, uint32_t max);
  NodeId List(NodeId item, const char* open, const char* close);
  // Numbers from low to high without leading zeros; of the bounds' lengths, and those between.
  NodeId Natural(uint64_t low, std::optional<uint64_t> high);
  NodeId SameLength(std::string_view low, std::string_view high);
  NodeId Magnitude(std::optional<Bound> low, std::optional<Bound> high);

  Grammar& grammar_;
  std::map<std::string, RuleId, std::less<>> shared_;
};

}  // namespace moestro::text::grammar
