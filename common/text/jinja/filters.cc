#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

Result LengthFilter(const Value& self, Args, Budget& budget) {
  if (const std::string* text = self.AsString()) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text->size())));
  }
  const std::optional<int64_t> length = Length(self);
  if (!length.has_value()) return absl::InvalidArgumentError(Concat(self.TypeName(), " has no length"));
  return Value(*length);
}

absl::StatusOr<std::string> JsonIndent(const Value& indent) {
  constexpr int64_t kMaxIndent = 16;
  std::string text;
  if (const std::string* given = indent.AsString()) {
    text = *given;
  } else {
    MOE_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(indent, 0, "indent"));
    if (width > kMaxIndent) return absl::InvalidArgumentError(Concat("'indent' is over ", kMaxIndent));
    text.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (static_cast<int64_t>(text.size()) > kMaxIndent) {
    return absl::InvalidArgumentError(Concat("'indent' is over ", kMaxIndent, " bytes"));
  }
  return text;
}

// tojson(ensure_ascii = false, indent = none, separators = none, sort_keys = false), as in transformers
Result ToJsonFilter(const Value& self, Args args, Budget& budget) {
  JsonStyle style;
  style.ascii = args[0].IsTrue();
  style.sort_keys = args[3].IsTrue();
  style.lines = !args[1].IsUndefined() && !args[1].IsNone();
  MOE_ASSIGN_OR_RETURN(style.indent, JsonIndent(args[1]));
  if (style.lines) style.item_separator.assign(1, ',');
  if (!args[2].IsUndefined() && !args[2].IsNone()) {
    const List* pair = args[2].AsList();
    if (pair == nullptr || pair->items.size() != 2)
      return absl::InvalidArgumentError("'separators' must be two strings");
    MOE_ASSIGN_OR_RETURN(const std::string* item, StringArgument(pair->items[0], "separators"));
    MOE_ASSIGN_OR_RETURN(const std::string* key, StringArgument(pair->items[1], "separators"));
    style.item_separator = *item;
    style.key_separator = *key;
  }
  MOE_ASSIGN_OR_RETURN(std::string text, ToJson(self, style, &budget));
  return Value(std::move(text));
}

Result DefaultFilter(const Value& self, Args args, Budget&) {
  const bool use_default = self.IsUndefined() || (args[1].IsTrue() && !self.IsTrue());
  if (!use_default) return self;
  return args[0].IsUndefined() ? Value("") : args[0];
}

// Parses a text that is a number, with optional white space around it.
std::optional<double> ParseNumber(std::string_view text) {
  text = StripSpace(text, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  text = StripSpace(text, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result IntFilter(const Value& self, Args args, Budget& budget) {
  const Value fallback = args[0].IsUndefined() ? Value(int64_t{0}) : args[0];
  if (self.IsIntegral()) return Value(self.Integral());
  if (self.AsBigDigits() != nullptr) return self;
  std::optional<double> number;
  if (const std::string* text = self.AsString()) {
    MOE_RETURN_IF_ERROR(budget.Charge(2 * static_cast<int64_t>(text->size())));
    if (const auto integer = ParseInteger(*text)) return Value(*integer);
    number = ParseNumber(*text);
  } else if (const double* real = self.AsFloat()) {
    number = *real;
  }
  // Larger values do not fit an int64.
  constexpr double kLimit = 9.2e18;
  if (!number.has_value() || !(std::fabs(*number) < kLimit)) return fallback;
  return Value(static_cast<int64_t>(*number));
}

Result FloatFilter(const Value& self, Args args, Budget& budget) {
  if (self.IsNumber()) return Value(self.Number());
  std::optional<double> number;
  if (const std::string* text = self.AsString()) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text->size())));
    number = ParseNumber(*text);
  }
  if (number.has_value()) return Value(*number);
  return args[0].IsUndefined() ? Value(0.0) : args[0];
}

Result AbsFilter(const Value& self, Args, Budget&) {
  if (const double* real = self.AsFloat()) return Value(std::fabs(*real));
  if (!self.IsIntegral()) return absl::InvalidArgumentError(Concat("needs a number, not ", self.TypeName()));
  if (self.Integral() >= 0) return Value(self.Integral());
  return ApplyUnary(UnaryOperator::kNegate, self);
}

// round(precision = 0, method = 'common' | 'ceil' | 'floor')
Result RoundFilter(const Value& self, Args args, Budget&) {
  constexpr int64_t kMaxPrecision = 20;  // a double has 17 digits
  if (!self.IsNumber()) return absl::InvalidArgumentError(Concat("needs a number, not ", self.TypeName()));
  MOE_ASSIGN_OR_RETURN(const int64_t precision, IntegerArgument(args[0], 0, "precision"));
  if (precision < 0 || precision > kMaxPrecision) {
    return absl::InvalidArgumentError(Concat("'precision' must be 0 to ", kMaxPrecision));
  }
  const std::string common = "common";
  const std::string* method = &common;
  if (!args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(method, StringArgument(args[1], "method"));
  }
  if (*method == "ceil" || *method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = self.Number() * scale;
    return Value((*method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (*method != "common") return absl::InvalidArgumentError("'method' must be 'common', 'ceil' or 'floor'");
  if (self.IsIntegral()) return Value(self.Integral());
  // The decimal that is nearest to the exact value, the even one of two: as Python rounds.
  std::array<char, 400> digits;
  std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), self.Number());
  return Value(std::strtod(digits.data(), nullptr));
}

constexpr Function kFilters[] = {
    {"abs", {}, AbsFilter},
    {"count", {}, LengthFilter},
    {"d", {"default_value", "boolean"}, DefaultFilter},
    {"default", {"default_value", "boolean"}, DefaultFilter},
    {"float", {"default"}, FloatFilter},
    {"int", {"default"}, IntFilter},
    {"length", {}, LengthFilter},
    {"round", {"precision", "method"}, RoundFilter},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, ToJsonFilter},
};

}  // namespace

const Function* FindFilter(std::string_view name) {
  for (const std::span<const Function> filters :
       {std::span<const Function>(kFilters), TextFilters(), SequenceFilters()}) {
    for (const Function& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

bool IsOtherFilter(std::string_view name) {
  constexpr std::string_view kNames[] = {"filesizeformat", "pprint",    "random", "slice",    "striptags",
                                         "truncate",       "urlencode", "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace moestro::text::jinja
