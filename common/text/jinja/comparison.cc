#include <algorithm>
#include <compare>
#include <cstdlib>
#include <optional>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/strings.h"

namespace moestro::text::jinja {
namespace {

constexpr int64_t kComparisonCost = 16;

// Recursion is bounded by kMaxValueDepth.
absl::StatusOr<bool> Equal(const Value& left, const Value& right, Budget& budget);

absl::StatusOr<bool> EqualLists(const List& left, const List& right, Budget& budget) {
  if (left.items.size() != right.items.size() || left.is_tuple != right.is_tuple) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const bool equal, Equal(left.items[i], right.items[i], budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    MOE_ASSIGN_OR_RETURN(const Value* other, right.Find(key, budget));
    if (other == nullptr) return false;
    MOE_ASSIGN_OR_RETURN(const bool equal, Equal(value, *other, budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> Equal(const Value& left, const Value& right, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(kComparisonCost));
  if (left.IsIntegral() && right.IsIntegral()) return left.Integral() == right.Integral();
  if (left.IsNumber() && right.IsNumber()) return left.Number() == right.Number();
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    MOE_RETURN_IF_ERROR(
        budget.Charge(static_cast<int64_t>(std::min(left.AsString()->size(), right.AsString()->size()))));
    return *left.AsString() == *right.AsString();
  }
  if (left.AsBigDigits() != nullptr && right.AsBigDigits() != nullptr) {
    return *left.AsBigDigits() == *right.AsBigDigits();
  }
  if (left.AsList() != nullptr && right.AsList() != nullptr) return EqualLists(*left.AsList(), *right.AsList(), budget);
  if (left.AsDict() != nullptr && right.AsDict() != nullptr) return EqualDicts(*left.AsDict(), *right.AsDict(), budget);
  if (left.AsNamespace() != nullptr) return left.AsNamespace() == right.AsNamespace();
  if (left.AsMacro() != nullptr) return left.AsMacro() == right.AsMacro();
  return (left.IsUndefined() && right.IsUndefined()) || (left.IsNone() && right.IsNone());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.AsString()) {
    const std::string* part = item.AsString();
    if (part == nullptr) {
      return absl::InvalidArgumentError(Concat("'in' a string needs a string, not ", item.TypeName()));
    }
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text->size() + part->size())));
    return Find(*text, *part) != std::string::npos;
  }
  if (const List* list = container.AsList()) {
    for (const Value& candidate : list->items) {
      MOE_ASSIGN_OR_RETURN(const bool equal, Equal(candidate, item, budget));
      if (equal) return true;
    }
    return false;
  }
  if (const Dict* dict = container.AsDict()) {
    const absl::StatusOr<std::string> key = DictKey(item);
    if (!key.ok()) return false;
    MOE_ASSIGN_OR_RETURN(const Value* found, dict->Find(*key, budget));
    return found != nullptr;
  }
  if (container.IsUndefined()) return false;
  return absl::InvalidArgumentError(Concat("'in' does not take ", container.TypeName()));
}

// Integers of any size as doubles.
std::optional<double> Approximately(const Value& value) {
  if (value.IsNumber()) return value.Number();
  const std::string* digits = value.AsBigDigits();
  return digits == nullptr ? std::nullopt : std::optional(std::strtod(digits->c_str(), nullptr));
}

absl::StatusOr<std::partial_ordering> Order(const Value& left, const Value& right, Budget& budget) {
  if (left.IsIntegral() && right.IsIntegral()) {
    return std::partial_ordering(left.Integral() <=> right.Integral());
  }
  if (left.IsNumber() && right.IsNumber()) return left.Number() <=> right.Number();
  if (left.AsBigDigits() != nullptr || right.AsBigDigits() != nullptr) {
    const std::optional<double> a = Approximately(left), b = Approximately(right);
    if (a.has_value() && b.has_value()) return *a <=> *b;
  }
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(left.AsString()->size())));
    // The byte order of UTF-8 is the order of code points.
    return std::partial_ordering(*left.AsString() <=> *right.AsString());
  }
  return absl::InvalidArgumentError(Concat("cannot order ", left.TypeName(), " and ", right.TypeName()));
}

}  // namespace

absl::StatusOr<bool> Compare(Comparison comparison, const Value& left, const Value& right, Budget& budget) {
  if (comparison == Comparison::kIn) return Contains(right, left, budget);
  if (comparison == Comparison::kNotIn) {
    MOE_ASSIGN_OR_RETURN(const bool contained, Contains(right, left, budget));
    return !contained;
  }
  if (comparison == Comparison::kEqual) return Equal(left, right, budget);
  if (comparison == Comparison::kNotEqual) {
    MOE_ASSIGN_OR_RETURN(const bool equal, Equal(left, right, budget));
    return !equal;
  }
  MOE_ASSIGN_OR_RETURN(const std::partial_ordering order, Order(left, right, budget));
  switch (comparison) {
    case Comparison::kLess:
      return order < 0;
    case Comparison::kLessEqual:
      return order <= 0;
    case Comparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace moestro::text::jinja
