// The numbers of JsonText.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/text/concat.h"
#include "common/text/grammar/json_text.h"

namespace moestro::text::grammar {
namespace {

// A double holds all integers of 15 digits, and the product of 16 digits and 10^99.
constexpr uint32_t kMaxDigits = 16;

}  // namespace

NodeId JsonText::Digits(uint32_t min, uint32_t max) {
  return grammar_.Repeat(grammar_.Class(CodePointSet({{'0', '9'}})), min, max);
}

NodeId JsonText::Integer() { return IntegerBetween(std::nullopt, std::nullopt); }

NodeId JsonText::Number() {
  const NodeId sign = grammar_.Optional(grammar_.Bytes("-"));
  const NodeId fraction = grammar_.Sequence({grammar_.Bytes("."), Digits(1, kMaxDigits)});
  const NodeId exponent = grammar_.Sequence({grammar_.Class(CodePointSet::Of("eE")),
                                             grammar_.Optional(grammar_.Class(CodePointSet::Of("+-"))), Digits(1, 2)});
  return grammar_.Sequence({sign, Natural(0, std::nullopt), grammar_.Optional(fraction), grammar_.Optional(exponent)});
}

// Digit strings of one length from `low` to `high`.
NodeId JsonText::SameLength(std::string_view low, std::string_view high) {
  const auto length = static_cast<uint32_t>(low.size());
  const auto only = [](std::string_view text, char digit) {
    return std::all_of(text.begin(), text.end(), [&](char c) { return c == digit; });
  };
  if (only(low, '0') && only(high, '9')) return Digits(length, length);
  const auto first = [&](char from, char to) {
    return grammar_.Class(CodePointSet({{static_cast<char32_t>(from), static_cast<char32_t>(to)}}));
  };
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) return grammar_.Sequence({first(low[0], low[0]), SameLength(low_rest, high_rest)});
  const std::string nines(length - 1, '9'), zeros(length - 1, '0');
  std::vector<NodeId> ways = {grammar_.Sequence({first(low[0], low[0]), SameLength(low_rest, nines)}),
                              grammar_.Sequence({first(high[0], high[0]), SameLength(zeros, high_rest)})};
  if (low[0] + 1 < high[0]) {
    ways.push_back(grammar_.Sequence({first(low[0] + 1, high[0] - 1), Digits(length - 1, length - 1)}));
  }
  return grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::Natural(uint64_t low, std::optional<uint64_t> high) {
  const std::string from = std::to_string(low);
  const std::string to =
      high.has_value() ? std::to_string(*high) : std::string(std::max<size_t>(kMaxDigits, from.size()), '9');
  std::vector<NodeId> ways;
  for (size_t length = from.size(); length <= to.size(); ++length) {
    const std::string least = length == from.size() ? from : Concat("1", std::string(length - 1, '0'));
    const std::string most = length == to.size() ? to : std::string(length, '9');
    ways.push_back(SameLength(least, most));
  }
  return grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::IntegerBetween(std::optional<int64_t> min, std::optional<int64_t> max) {
  const auto magnitude = [](int64_t value) { return uint64_t{0} - static_cast<uint64_t>(value); };  // of a negative one
  std::vector<NodeId> ways;
  if (!max.has_value() || *max >= 0) {
    const std::optional<uint64_t> high = max.has_value() ? std::optional<uint64_t>(*max) : std::nullopt;
    ways.push_back(Natural(std::max<int64_t>(min.value_or(0), 0), high));
  }
  if (!min.has_value() || *min < 0) {
    const std::optional<uint64_t> high = min.has_value() ? std::optional(magnitude(*min)) : std::nullopt;
    const uint64_t low = max.has_value() && *max < 0 ? magnitude(*max) : 1;
    ways.push_back(grammar_.Sequence({grammar_.Bytes("-"), Natural(low, high)}));
  }
  return grammar_.Alternatives(std::move(ways));
}

// Numbers without sign; `low` is not negative.
NodeId JsonText::Magnitude(std::optional<Bound> low, std::optional<Bound> high) {
  const NodeId zeros = grammar_.Repeat(grammar_.Bytes("0"), 0, kMaxDigits - 1);
  const NodeId point = grammar_.Bytes(".");
  const NodeId any = grammar_.Optional(grammar_.Sequence({point, Digits(1, kMaxDigits)}));
  // Zero and not zero, after the point.
  const NodeId none = grammar_.Optional(grammar_.Sequence({point, grammar_.Bytes("0"), zeros}));
  const NodeId some =
      grammar_.Sequence({point, zeros, grammar_.Class(CodePointSet({{'1', '9'}})), Digits(0, kMaxDigits)});
  const uint64_t least = low.has_value() ? static_cast<uint64_t>(low->value) : 0;
  std::vector<NodeId> ways;
  const auto add = [&](uint64_t from, std::optional<uint64_t> to, NodeId fraction) {
    if (!to.has_value() || from <= *to) ways.push_back(grammar_.Sequence({Natural(from, to), fraction}));
  };
  uint64_t next = least;  // the first whole part with any fraction
  if (low.has_value() && low->exclusive) {
    if (!high.has_value() || least < static_cast<uint64_t>(high->value)) add(least, least, some);
    ++next;
  }
  if (!high.has_value()) {
    add(next, std::nullopt, any);
  } else {
    const auto most = static_cast<uint64_t>(high->value);
    if (most > 0) add(next, most - 1, any);
    if (!high->exclusive && next <= most) add(most, most, none);
  }
  return ways.empty() ? grammar_.Class({}) : grammar_.Alternatives(std::move(ways));
}

NodeId JsonText::NumberBetween(std::optional<Bound> min, std::optional<Bound> max) {
  std::vector<NodeId> ways;
  const auto negated = [](std::optional<Bound> bound) {
    if (bound.has_value()) bound->value = -bound->value;
    return bound;
  };
  if (!max.has_value() || max->value >= 0) {
    ways.push_back(Magnitude(min.has_value() && min->value >= 0 ? min : std::nullopt, max));
  }
  if (!min.has_value() || min->value < 0) {
    // Zero has no sign here.
    const std::optional<Bound> low = max.has_value() && max->value < 0 ? negated(max) : Bound{0, true};
    ways.push_back(grammar_.Sequence({grammar_.Bytes("-"), Magnitude(low, negated(min))}));
  }
  return grammar_.Alternatives(std::move(ways));
}

}  // namespace moestro::text::grammar
