// The numbers of JsonText.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/text/grammar/json_text.h"

namespace moestro::text::grammar {
namespace {

// Whether it is the first of its length, such as 100; 0 is not.
bool IsPowerOfTen(std::string_view digits) {
  return digits[0] == '1' && digits.find_first_not_of('0', 1) == std::string_view::npos;
}

bool IsAll(std::string_view digits, char digit) { return digits.find_first_not_of(digit) == std::string_view::npos; }

}  // namespace

NodeId JsonText::DigitsFrom(char first, char last) {
  return grammar_.Class(CodePointSet({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}));
}

NodeId JsonText::Digits(uint32_t min, uint32_t max) { return grammar_.Repeat(DigitsFrom('0', '9'), min, max); }

NodeId JsonText::Integer() { return IntegerBetween(std::nullopt, std::nullopt); }

NodeId JsonText::Number() {
  const NodeId sign = grammar_.Optional(grammar_.Bytes("-"));
  const NodeId fraction = grammar_.Sequence({grammar_.Bytes("."), Digits(1, kMaxDigits)});
  const NodeId exponent = grammar_.Sequence({grammar_.Class(CodePointSet::Of("eE")),
                                             grammar_.Optional(grammar_.Class(CodePointSet::Of("+-"))), Digits(1, 2)});
  return grammar_.Sequence(
      {sign, Natural("0", std::nullopt), grammar_.Optional(fraction), grammar_.Optional(exponent)});
}

// Digit strings of one length from `low` to `high`.
NodeId JsonText::SameLength(std::string_view low, std::string_view high) {
  const auto length = static_cast<uint32_t>(low.size());
  if (IsAll(low, '0') && IsAll(high, '9')) return Digits(length, length);
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) return grammar_.Sequence({DigitsFrom(low[0], low[0]), SameLength(low_rest, high_rest)});
  const std::string nines(length - 1, '9'), zeros(length - 1, '0');
  std::vector<NodeId> ways = {grammar_.Sequence({DigitsFrom(low[0], low[0]), SameLength(low_rest, nines)}),
                              grammar_.Sequence({DigitsFrom(high[0], high[0]), SameLength(zeros, high_rest)})};
  if (low[0] + 1 < high[0]) {
    const auto first = static_cast<char>(low[0] + 1), last = static_cast<char>(high[0] - 1);
    ways.push_back(grammar_.Sequence({DigitsFrom(first, last), Digits(length - 1, length - 1)}));
  }
  return grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::Natural(const std::string& low, const std::optional<std::string>& high) {
  const std::string to = high.value_or(std::string(std::max<size_t>(kMaxDigits, low.size()), '9'));
  if (low.size() == to.size()) return SameLength(low, to);
  // Of each length between these all numbers.
  const size_t first = IsPowerOfTen(low) ? low.size() : low.size() + 1;
  const size_t last = IsAll(to, '9') ? to.size() : to.size() - 1;
  std::vector<NodeId> ways;
  if (first > low.size()) ways.push_back(SameLength(low, std::string(low.size(), '9')));
  if (first <= last) {
    ways.push_back(grammar_.Sequence(
        {DigitsFrom('1', '9'), Digits(static_cast<uint32_t>(first) - 1, static_cast<uint32_t>(last) - 1)}));
  }
  if (last < to.size()) ways.push_back(SameLength("1" + std::string(to.size() - 1, '0'), to));
  return grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::IntegerBetween(const std::optional<Decimal>& min, const std::optional<Decimal>& max) {
  const auto whole = [](const std::optional<Decimal>& bound) {
    return bound.has_value() ? std::optional(bound->whole) : std::nullopt;
  };
  std::vector<NodeId> ways;
  if (!max.has_value() || !max->negative) {
    ways.push_back(Natural(min.has_value() && !min->negative ? min->whole : "0", whole(max)));
  }
  if (!min.has_value() || min->negative) {
    const std::string low = max.has_value() && max->negative ? max->whole : "1";
    ways.push_back(grammar_.Sequence({grammar_.Bytes("-"), Natural(low, whole(min))}));
  }
  return grammar_.Alternatives(std::move(ways));
}

// The digits behind `at` digits of a fraction: of those so far, all are those of `low`, or all are those of `high`, if
// that is what the pointers say. May be nothing where what has come is a fraction between both.
NodeId JsonText::FractionRest(size_t at, const Fraction* low, const Fraction* high) {
  const auto left = static_cast<uint32_t>(kMaxDigits - at);
  if (low == nullptr && high == nullptr) return Digits(0, left);
  const auto has_more = [&](const Fraction& bound) { return bound.digits.size() > at; };
  const bool is_above = low == nullptr || (!has_more(*low) && !low->exclusive);
  const bool is_below = high == nullptr || has_more(*high) || !high->exclusive;
  std::vector<NodeId> ways;
  if (is_above && is_below && at > 0) ways.push_back(grammar_.Bytes(""));
  if (left == 0) return ways.empty() ? grammar_.Class({}) : ways[0];
  const auto digit_of = [&](const Fraction& bound) { return has_more(bound) ? bound.digits[at] : '0'; };
  const char least = low == nullptr ? '0' : digit_of(*low);
  const char most = high == nullptr ? '9' : digit_of(*high);
  const auto add = [&](char first, char last, const Fraction* still_low, const Fraction* still_high) {
    if (first > last) return;
    ways.push_back(grammar_.Sequence({DigitsFrom(first, last), FractionRest(at + 1, still_low, still_high)}));
  };
  if (low != nullptr && high != nullptr && least == most) {
    add(least, most, low, high);
  } else {
    if (low != nullptr) add(least, least, low, nullptr);
    add(static_cast<char>(least + (low != nullptr ? 1 : 0)), static_cast<char>(most - (high != nullptr ? 1 : 0)),
        nullptr, nullptr);
    if (high != nullptr) add(most, most, nullptr, high);
  }
  return ways.empty() ? grammar_.Class({}) : grammar_.Alternatives(std::move(ways));
}

// Nothing, or a point and digits: between both.
NodeId JsonText::FractionBetween(const Fraction* low, const Fraction* high) {
  const bool is_above = low == nullptr || (low->digits.empty() && !low->exclusive);
  const bool is_below = high == nullptr || !high->digits.empty() || !high->exclusive;
  const NodeId some = low == nullptr && high == nullptr ? Digits(1, kMaxDigits) : FractionRest(0, low, high);
  const NodeId fraction = grammar_.Sequence({grammar_.Bytes("."), some});
  return is_above && is_below ? grammar_.Optional(fraction) : fraction;
}

// Numbers without sign; bounds are magnitudes.
NodeId JsonText::Magnitude(const Bound& low, const std::optional<Bound>& high) {
  const auto fraction_of = [](const Bound& bound, bool is_low) {
    Fraction fraction{bound.value.fraction, bound.exclusive};
    // Of the numbers that are written here, those beyond a longer fraction are those beyond its first digits.
    if (fraction.digits.size() > kMaxDigits) fraction = {fraction.digits.substr(0, kMaxDigits), is_low};
    return fraction;
  };
  const Fraction from = fraction_of(low, /*is_low=*/true);
  const std::string& first = low.value.whole;
  if (high.has_value() && high->value.whole == first) {
    const Fraction to = fraction_of(*high, /*is_low=*/false);
    return grammar_.Sequence({grammar_.Bytes(first), FractionBetween(&from, &to)});
  }
  std::vector<NodeId> ways = {grammar_.Sequence({grammar_.Bytes(first), FractionBetween(&from, nullptr)})};
  const std::string next = NextNatural(first);
  const std::optional<std::string> last =
      high.has_value() ? std::optional(PreviousNatural(high->value.whole)) : std::nullopt;
  const bool is_between =
      !last.has_value() || last->size() > next.size() || (last->size() == next.size() && *last >= next);
  if (is_between) ways.push_back(grammar_.Sequence({Natural(next, last), FractionBetween(nullptr, nullptr)}));
  if (high.has_value()) {
    const Fraction to = fraction_of(*high, /*is_low=*/false);
    ways.push_back(grammar_.Sequence({grammar_.Bytes(high->value.whole), FractionBetween(nullptr, &to)}));
  }
  return grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::NumberBetween(const std::optional<Bound>& min, const std::optional<Bound>& max) {
  const Bound zero{{.whole = "0"}, false};
  std::vector<NodeId> ways;
  if (!max.has_value() || !max->value.negative) {
    ways.push_back(Magnitude(min.has_value() && !min->value.negative ? *min : zero, max));
  }
  if (!min.has_value() || min->value.negative) {
    // Zero has no sign here.
    const Bound low = max.has_value() && max->value.negative ? *max : Bound{zero.value, true};
    ways.push_back(grammar_.Sequence({grammar_.Bytes("-"), Magnitude(low, min)}));
  }
  return grammar_.Alternatives(std::move(ways));
}

std::string NextNatural(std::string digits) {
  size_t i = digits.size();
  while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
  if (i == 0) return "1" + digits;
  ++digits[i - 1];
  return digits;
}

std::string PreviousNatural(std::string digits) {
  size_t i = digits.size();
  while (digits[i - 1] == '0') digits[--i] = '9';
  --digits[i - 1];
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

}  // namespace moestro::text::grammar
