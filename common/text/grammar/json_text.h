// The rules of JSON text that schemas share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// A number that is not below zero by its digits; `whole` has no leading zeros, `fraction` no trailing ones.
struct Decimal {
  bool negative = false;
  std::string whole = {};
  std::string fraction = {};
};
// One more, and one less than a number above zero.
std::string NextNatural(std::string digits);
std::string PreviousNatural(std::string digits);

// White space is at most a space, or up to two line ends and 20 blanks of indentation: a model that likes blanks cannot
// emit them for ever. It stands after brackets, commas and colons, and before closing brackets.
// Numbers have at most kMaxDigits digits before and after the point and two in the exponent: all can be read as
// doubles.
class JsonText {
 public:
  // A double holds all integers of 15 digits, and the product of 16 digits and 10^99.
  static constexpr uint32_t kMaxDigits = 16;

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
  // As many characters of a string, or parts of a list. From some hundreds on they are counted in blocks, and a maximum
  // may become a smaller one.
  NodeId Characters(uint32_t min, uint32_t max);
  NodeId Times(NodeId part, uint32_t min, uint32_t max);
  // A string that is none of these (UTF-8).
  NodeId StringExcept(const std::vector<std::string>& names);

  NodeId Pair(NodeId key, NodeId value);

  // Whole numbers from min to max. REQUIRES: min <= max, and both are whole.
  NodeId IntegerBetween(const std::optional<Decimal>& min, const std::optional<Decimal>& max);
  // Numbers without exponent. REQUIRES: some are between the bounds.
  struct Bound {
    Decimal value;
    bool exclusive;
  };
  NodeId NumberBetween(const std::optional<Bound>& min, const std::optional<Bound>& max);

  Grammar& grammar() { return grammar_; }

 private:
  // A call of the rule of this name, which `make` defines at the first.
  template <typename Make>
  NodeId Shared(const char* name, Make make);
  struct Fraction {
    std::string digits;
    bool exclusive;
  };
  NodeId DigitsFrom(char first, char last);
  NodeId Digits(uint32_t min, uint32_t max);
  NodeId List(NodeId item, const char* open, const char* close);
  // Numbers from low to high without leading zeros; of the bounds' lengths, and those between.
  NodeId Natural(const std::string& low, const std::optional<std::string>& high);
  NodeId SameLength(std::string_view low, std::string_view high);
  NodeId Magnitude(const Bound& low, const std::optional<Bound>& high);
  NodeId FractionBetween(const Fraction* low, const Fraction* high);
  NodeId FractionRest(size_t at, const Fraction* low, const Fraction* high);

  Grammar& grammar_;
  std::map<std::string, RuleId, std::less<>> shared_;
  struct Blocks {
    NodeId small;
    NodeId large;
  };
  std::map<NodeId, Blocks> blocks_;  // by part
  NodeId character_ = -1;            // a call, of which many are counted
};

}  // namespace moestro::text::grammar
