#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

// Text filters take any value in its printed form, as in Jinja.
absl::StatusOr<std::string> TextOf(const Value& self, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  // Pays for the result, which is not longer unless the filter charges more.
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size())));
  return text;
}

Result LengthFilter(const Value& self, Args, Budget& budget) {
  if (const std::string* text = self.AsString()) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text->size())));
  }
  const std::optional<int64_t> length = Length(self);
  if (!length.has_value()) return absl::InvalidArgumentError(Concat(self.TypeName(), " has no length"));
  return Value(*length);
}

Result TrimFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  const Function* method = FindMethod(Value(""), "strip");
  return method->call(Value(std::move(text)), args, budget);
}

Result UpperFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  return Value(Upper(text));
}

Result LowerFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  return Value(Lower(text));
}

Result CapitalizeFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  return Value(Capitalize(text));
}

Result StringFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  return Value(std::move(text));
}

Result ReplaceFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  const Function* method = FindMethod(Value(""), "replace");
  return method->call(Value(text), args, budget);
}

Result ToJsonFilter(const Value& self, Args args, Budget& budget) {
  constexpr int64_t kMaxIndent = 16;
  MOE_ASSIGN_OR_RETURN(const int64_t indent, IntegerArgument(args[0], -1, "indent"));
  if (indent > kMaxIndent) return absl::InvalidArgumentError(Concat("'indent' is over ", kMaxIndent));
  const bool ascii = !args[1].IsUndefined() && args[1].IsTrue();
  if (ascii) return absl::InvalidArgumentError("'ensure_ascii' is not supported");
  MOE_ASSIGN_OR_RETURN(std::string text, ToJson(self, static_cast<int>(std::max<int64_t>(indent, -1)), &budget));
  return Value(std::move(text));
}

Result DefaultFilter(const Value& self, Args args, Budget&) {
  const bool use_default = self.IsUndefined() || (args[1].IsTrue() && !self.IsTrue());
  if (!use_default) return self;
  return args[0].IsUndefined() ? Value("") : args[0];
}

Result JoinFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  MOE_ASSIGN_OR_RETURN(const std::string separator, ToText(args[0], &budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!args[1].IsUndefined()) {
      MOE_ASSIGN_OR_RETURN(item, GetItem(items[i], args[1], budget));
    }
    MOE_ASSIGN_OR_RETURN(const std::string text, ToText(item, &budget));
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size() + separator.size())));
    if (i > 0) out += separator;
    out += text;
  }
  return Value(std::move(out));
}

Result FirstFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  return items.empty() ? Value() : items.front();
}

Result LastFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  return items.empty() ? Value() : items.back();
}

Result ListFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  return Value::MakeList(std::move(items));
}

Result ReverseFilter(const Value& self, Args, Budget& budget) {
  if (self.AsString() != nullptr) return GetSlice(self, Value(), Value(), Value(int64_t{-1}), budget);
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

Result ItemsFilter(const Value& self, Args, Budget& budget) {
  if (self.IsUndefined()) return Value::MakeList({});
  if (self.AsDict() == nullptr) return absl::InvalidArgumentError(Concat("needs a dict, not ", self.TypeName()));
  return DictItems(*self.AsDict(), budget);
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

// selectattr(attribute, test = truth, argument)
Result SelectByAttribute(const Value& self, Args args, Budget& budget, bool wanted) {
  MOE_ASSIGN_OR_RETURN(const std::string* attribute, StringArgument(args[0], "attribute"));
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(attribute->size())));
  if (attribute->find('.') != std::string::npos)
    return absl::InvalidArgumentError("nested attributes are not supported");
  const Function* test = nullptr;
  if (!args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(const std::string* name, StringArgument(args[1], "test"));
    test = FindTest(*name);
    if (test == nullptr) return absl::InvalidArgumentError(Concat("test '", *name, "' is not supported"));
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  std::vector<Value> selected;
  for (const Value& item : items) {
    MOE_ASSIGN_OR_RETURN(Value value, GetAttribute(item, *attribute, budget));
    if (test != nullptr) {
      const std::array<Value, Function::kMaxParameters> test_args = {args[2]};
      MOE_ASSIGN_OR_RETURN(value, test->call(value, test_args, budget));
    }
    if (value.IsTrue() == wanted) selected.push_back(item);
  }
  return Value::MakeList(std::move(selected));
}

Result SelectAttrFilter(const Value& self, Args args, Budget& budget) {
  return SelectByAttribute(self, args, budget, /*wanted=*/true);
}

Result RejectAttrFilter(const Value& self, Args args, Budget& budget) {
  return SelectByAttribute(self, args, budget, /*wanted=*/false);
}

// map('filter') or map(attribute='name')
Result MapFilter(const Value& self, Args args, Budget& budget) {
  const Function* filter = nullptr;
  if (args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(const std::string* name, StringArgument(args[0], "filter"));
    filter = FindFilter(*name);
    if (filter == nullptr) return absl::InvalidArgumentError(Concat("filter '", *name, "' is not supported"));
    if (filter->call == &MapFilter) return absl::InvalidArgumentError("map of map is not supported");
  }
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  for (Value& item : items) {
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    if (filter != nullptr) {
      const std::array<Value, Function::kMaxParameters> no_args{};
      MOE_ASSIGN_OR_RETURN(item, filter->call(item, no_args, budget));
    } else {
      MOE_ASSIGN_OR_RETURN(item, GetItem(item, args[1], budget));
    }
  }
  return Value::MakeList(std::move(items));
}

constexpr Function kFilters[] = {
    {"capitalize", {}, CapitalizeFilter},
    {"count", {}, LengthFilter},
    {"d", {"default_value", "boolean"}, DefaultFilter},
    {"default", {"default_value", "boolean"}, DefaultFilter},
    {"first", {}, FirstFilter},
    {"float", {"default"}, FloatFilter},
    {"int", {"default"}, IntFilter},
    {"items", {}, ItemsFilter},
    {"join", {"d", "attribute"}, JoinFilter},
    {"last", {}, LastFilter},
    {"length", {}, LengthFilter},
    {"list", {}, ListFilter},
    {"lower", {}, LowerFilter},
    {"map", {"filter", "attribute"}, MapFilter},
    {"rejectattr", {"attribute", "test", "argument"}, RejectAttrFilter},
    {"replace", {"old", "new", "count"}, ReplaceFilter},
    {"reverse", {}, ReverseFilter},
    {"safe", {}, StringFilter},
    {"selectattr", {"attribute", "test", "argument"}, SelectAttrFilter},
    {"string", {}, StringFilter},
    {"tojson", {"indent", "ensure_ascii"}, ToJsonFilter},
    {"trim", {"chars"}, TrimFilter},
    {"upper", {}, UpperFilter},
};

}  // namespace

const Function* FindFilter(std::string_view name) {
  for (const Function& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace moestro::text::jinja
