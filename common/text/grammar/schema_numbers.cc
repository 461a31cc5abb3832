#include "common/text/grammar/schema_numbers.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/intersection.h"
#include "common/text/grammar/schema_keywords.h"

namespace moestro::text::grammar {
namespace {

using Bound = JsonText::Bound;

// Of the whole part of a bound that numbers must be beyond: those of a 64-bit integer.
constexpr size_t kMostDigits = 20;
// Remainders, times digits after the point, that an automaton tells apart. Of larger divisors some multiples will do.
constexpr uint64_t kMostRemainders = 512;
constexpr int kMostMultiples = 512;
// Divisors of more digits have no multiple among numbers of 16.
constexpr size_t kMostDivisorDigits = 16;

// "-12.5e3" as digits before and after the point.
Decimal DecimalOf(const Schema& number) {
  const std::string text = number.dump();
  Decimal decimal{.negative = text.starts_with('-')};
  const size_t digits = decimal.negative ? 1 : 0;
  const size_t end = std::min(text.find_first_of("eE"), text.size());
  const size_t point = std::min(text.find('.'), end);
  int exponent = 0;
  if (end < text.size()) (void)absl::SimpleAtoi(text.substr(end + 1), &exponent);  // written by the library
  decimal.whole = text.substr(digits, point - digits);
  if (point < end) decimal.fraction = text.substr(point + 1, end - point - 1);
  for (; exponent > 0; --exponent) {
    decimal.whole += decimal.fraction.empty() ? '0' : decimal.fraction[0];
    if (!decimal.fraction.empty()) decimal.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    decimal.fraction.insert(0, 1, decimal.whole.empty() ? '0' : decimal.whole.back());
    if (!decimal.whole.empty()) decimal.whole.pop_back();
  }
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  decimal.fraction.resize(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.whole == "0" && decimal.fraction.empty()) decimal.negative = false;
  return decimal;
}

int CompareMagnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? CompareMagnitudes(b, a) : CompareMagnitudes(a, b);
}

struct NumberRange {
  std::optional<Bound> min, max;
};

// Of minimum and exclusiveMinimum the stronger one, and so on. In drafts before the sixth the second is true or false.
absl::StatusOr<std::optional<Bound>> BoundOf(const Schema& schema, const char* inclusive, const char* exclusive,
                                             bool is_min, const std::string& where) {
  std::optional<Bound> bound;
  for (const char* keyword : {inclusive, exclusive}) {
    const Schema* value = Find(schema, keyword);
    if (value == nullptr) continue;
    if (keyword == exclusive && value->is_boolean()) {
      if (bound.has_value()) bound->exclusive = value->get<bool>();
      continue;
    }
    if (!value->is_number()) return SchemaError(Under(where, keyword), "is not a number");
    const Decimal decimal = DecimalOf(*value);
    const int order = bound.has_value() ? Compare(decimal, bound->value) : 0;
    const bool is_stronger = !bound.has_value() || (is_min ? order >= 0 : order <= 0);
    if (is_stronger) bound = Bound{decimal, keyword == exclusive};
  }
  if (!bound.has_value()) return bound;
  const size_t digits = bound->value.whole.size();
  // Beyond all numbers of 16 digits: it binds nothing, or leaves nothing.
  const bool is_far_side = bound->value.negative == is_min;
  if (is_far_side && digits > JsonText::kMaxDigits) return std::nullopt;
  if (!is_far_side && digits > kMostDigits) return SchemaError(where, "a minimum or maximum leaves no number");
  return bound;
}

absl::StatusOr<NumberRange> RangeOf(const Schema& schema, const std::string& where) {
  NumberRange range;
  MOE_ASSIGN_OR_RETURN(range.min, BoundOf(schema, "minimum", "exclusiveMinimum", /*is_min=*/true, where));
  MOE_ASSIGN_OR_RETURN(range.max, BoundOf(schema, "maximum", "exclusiveMaximum", /*is_min=*/false, where));
  if (!range.min.has_value() || !range.max.has_value()) return range;
  const int order = Compare(range.min->value, range.max->value);
  if (order > 0 || (order == 0 && (range.min->exclusive || range.max->exclusive))) {
    return SchemaError(where, "no number is between the minimum and the maximum");
  }
  return range;
}

// The first integer from a bound on, upwards or downwards.
Decimal FirstInteger(const Bound& bound, bool upwards) {
  Decimal integer = bound.value;
  const bool is_whole = std::exchange(integer.fraction, {}).empty();
  const bool moves_on = is_whole && bound.exclusive;
  const bool grows = integer.negative != upwards;  // away from zero
  if (integer.whole == "0" && !is_whole && !grows) {
    integer.negative = false;  // cut
  } else if (integer.whole == "0" && moves_on) {
    integer = {.negative = !upwards, .whole = "1"};
  } else if (grows && (moves_on || !is_whole)) {
    integer.whole = NextNatural(std::move(integer.whole));
  } else if (moves_on) {
    integer.whole = PreviousNatural(std::move(integer.whole));
  }
  if (integer.whole == "0") integer.negative = false;
  return integer;
}

absl::StatusOr<NumberRange> Integers(NumberRange range, const std::string& where) {
  if (range.min.has_value()) range.min = Bound{FirstInteger(*range.min, /*upwards=*/true), false};
  if (range.max.has_value()) range.max = Bound{FirstInteger(*range.max, /*upwards=*/false), false};
  if (range.min.has_value() && range.max.has_value() && Compare(range.min->value, range.max->value) > 0) {
    return SchemaError(where, "no integer is between the minimum and the maximum");
  }
  return range;
}

// number · 10^-scale, without trailing zeros where it is whole.
struct Divisor {
  uint64_t number = 1;
  size_t scale = 0;
  size_t zeros = 0;  // behind a whole one
};

absl::StatusOr<std::optional<Divisor>> DivisorOf(const Schema& schema, bool is_integer, const std::string& where) {
  const Schema* value = Find(schema, "multipleOf");
  if (value == nullptr) return std::nullopt;
  const std::string place = Under(where, "multipleOf");
  if (!value->is_number() || value->get<double>() <= 0) return SchemaError(place, "is not a number above zero");
  const Decimal decimal = DecimalOf(*value);
  Divisor divisor{.scale = decimal.fraction.size()};
  std::string digits = decimal.whole + decimal.fraction;
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.size() > kMostDivisorDigits || divisor.scale >= kMostDivisorDigits) {
    return SchemaError(place, "has too many digits to be enforced");
  }
  while (divisor.scale == 0 && digits.ends_with('0')) {
    digits.pop_back();
    ++divisor.zeros;
  }
  (void)absl::SimpleAtoi(digits, &divisor.number);  // at most 16 digits
  // Integers that are multiples of 2.5 are those of 5.
  for (; is_integer && divisor.scale > 0; --divisor.scale) {
    for (const uint64_t prime : {2, 5}) {
      if (divisor.number % prime == 0) divisor.number /= prime;
    }
  }
  return divisor;
}

// Any text of digits, a sign and a point that is a multiple, as an automaton over remainders. What bounds the digits is
// elsewhere.
Grammar MultiplesByRemainder(const Divisor& divisor) {
  const auto count = static_cast<int32_t>(divisor.number);
  const auto scale = static_cast<int32_t>(divisor.scale);
  // Phase 0 is before the point, phase 1 + i has i digits behind it.
  const auto state = [&](int32_t phase, int32_t remainder) { return phase * count + remainder; };
  Grammar::Graph graph;
  const auto add = [&](int32_t from, char first, char last, int32_t to) {
    graph.edges.push_back({from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to});
  };
  for (int32_t phase = 0; phase <= (scale > 0 ? 1 + scale : 0); ++phase) {
    const int32_t behind = std::max(phase - 1, 0);
    for (int32_t remainder = 0; remainder < count; ++remainder) {
      int64_t at_the_end = remainder;
      for (int32_t i = behind; i < scale; ++i) at_the_end = at_the_end * 10 % count;
      graph.accepting.push_back(at_the_end == 0);
      const int32_t from = state(phase, remainder);
      if (phase == 0 && scale > 0) add(from, '.', '.', state(1, remainder));
      if (phase > 0 && behind == scale) {
        add(from, '0', '0', from);
        continue;
      }
      for (int32_t digit = 0; digit <= 9; ++digit) {
        const int32_t next = state(phase == 0 ? 0 : phase + 1, (remainder * 10 + digit) % count);
        add(from, static_cast<char>('0' + digit), static_cast<char>('0' + digit), next);
      }
    }
  }
  add(state(0, 0), '-', '-', state(0, 0));
  Grammar grammar;
  NodeId body = grammar.FromGraph(std::move(graph));
  if (divisor.zeros > 0) {
    body = grammar.Alternatives(
        {grammar.Sequence({body, grammar.Bytes(std::string(divisor.zeros, '0'))}), grammar.Bytes("0")});
  }
  grammar.AddRule("(multiples)", body);
  return grammar;
}

// Some multiples, from the one that is next to zero on.
absl::StatusOr<NodeId> SomeMultiples(const Divisor& divisor, const NumberRange& range, const std::string& where,
                                     Grammar& grammar) {
  __int128 step = divisor.number;
  for (size_t i = 0; i < divisor.zeros; ++i) step *= 10;
  // What a bound is in units of the last digit of a multiple, towards the inside.
  const auto scaled = [&](const Bound& bound, bool is_min) {
    const std::string& fraction = bound.value.fraction;
    const std::string kept = fraction.substr(0, divisor.scale);
    __int128 value = 0;
    for (const char digit : bound.value.whole + kept + std::string(divisor.scale - kept.size(), '0')) {
      value = value * 10 + (digit - '0');
    }
    const bool is_exact = fraction.size() <= divisor.scale;
    const bool away = bound.value.negative != is_min;
    if (away ? !is_exact || bound.exclusive : is_exact && bound.exclusive) value += away ? 1 : -1;
    return bound.value.negative ? -value : value;
  };
  __int128 limit = 1;
  for (size_t i = 0; i < JsonText::kMaxDigits + divisor.scale; ++i) limit *= 10;
  const __int128 low = range.min.has_value() ? scaled(*range.min, true) : 1 - limit;
  const __int128 high = range.max.has_value() ? scaled(*range.max, false) : limit - 1;
  const bool is_negative = high < 0;
  const __int128 from = is_negative ? -high : std::max<__int128>(low, 0), to = is_negative ? -low : high;
  std::vector<NodeId> ways;
  for (__int128 value = (from + step - 1) / step * step; value <= to && ways.size() < kMostMultiples; value += step) {
    std::string text;
    for (__int128 rest = value; rest > 0 || text.size() <= divisor.scale; rest /= 10) {
      text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
    }
    if (divisor.scale > 0) text.insert(text.size() - divisor.scale, ".");
    ways.push_back(grammar.Bytes(is_negative && value > 0 ? Concat("-", text) : text));
  }
  if (ways.empty()) return SchemaError(where, "no multiple of multipleOf is between the minimum and the maximum");
  return grammar.Alternatives(std::move(ways));
}

NodeId Between(const NumberRange& range, bool is_integer, JsonText& json) {
  if (!is_integer) return json.NumberBetween(range.min, range.max);
  const auto value = [](const std::optional<Bound>& bound) {
    return bound.has_value() ? std::optional<Decimal>(bound->value) : std::nullopt;
  };
  return json.IntegerBetween(value(range.min), value(range.max));
}

}  // namespace

absl::StatusOr<NodeId> CompileNumber(const Schema& schema, bool is_integer, const std::string& where, JsonText& json,
                                     CompileBudget& budget) {
  MOE_ASSIGN_OR_RETURN(NumberRange range, RangeOf(schema, where));
  if (is_integer) {
    MOE_ASSIGN_OR_RETURN(range, Integers(std::move(range), where));
  }
  MOE_ASSIGN_OR_RETURN(const std::optional<Divisor> divisor, DivisorOf(schema, is_integer, where));
  const bool divides_all = divisor.has_value() && is_integer && divisor->number == 1 && divisor->zeros == 0;
  if (!divisor.has_value() || divides_all) {
    const bool is_bound = range.min.has_value() || range.max.has_value();
    return is_bound || is_integer ? Between(range, is_integer, json) : json.Number();
  }
  if (divisor->number > kMostRemainders / (2 + divisor->scale)) {
    MOE_RETURN_IF_ERROR(budget.Spend(2 * kMostMultiples));
    return SomeMultiples(*divisor, range, where, json.grammar());
  }
  Grammar bounded;
  JsonText digits(&bounded);
  const RuleId root = bounded.AddRule("(numbers)");
  bounded.Define(root, Between(range, is_integer, digits));
  MOE_RETURN_IF_ERROR(budget.Spend(static_cast<int64_t>(10 * divisor->number * (2 + divisor->scale))));
  MOE_ASSIGN_OR_RETURN(const Automaton multiples, Automaton::Compile(MultiplesByRemainder(*divisor), budget));
  MOE_ASSIGN_OR_RETURN(const Automaton numbers, Automaton::Compile(bounded, budget));
  const absl::StatusOr<Grammar> both = Intersect(numbers, multiples, budget);
  if (absl::IsNotFound(both.status())) {
    return SchemaError(where, "no multiple of multipleOf is between the minimum and the maximum");
  }
  if (!both.ok()) return Annotate(both.status(), Concat("schema: ", where));
  return json.grammar().Import(*both);
}

}  // namespace moestro::text::grammar
