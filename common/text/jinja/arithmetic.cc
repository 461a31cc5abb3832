#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/text_format.h"

namespace moestro::text::jinja {
namespace {

std::string_view OperatorText(BinaryOperator op) {
  constexpr std::string_view kTexts[] = {"+", "-", "*", "/", "//", "%", "**", "~"};
  return kTexts[static_cast<int>(op)];
}

absl::Status Overflow() { return absl::InvalidArgumentError("integer overflow"); }
absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }

absl::Status WrongTypes(BinaryOperator op, const Value& left, const Value& right) {
  return absl::InvalidArgumentError(
      Concat("'", OperatorText(op), "' does not take ", left.TypeName(), " and ", right.TypeName()));
}

// Rounds towards minus infinity, as Python does; the remainder has the sign of the divisor.
absl::StatusOr<Value> DivideIntegers(BinaryOperator op, int64_t left, int64_t right) {
  if (right == 0) return DivisionByZero();
  if (right == -1) {  // the only divisor whose quotient can overflow
    int64_t negated = 0;
    if (__builtin_sub_overflow(int64_t{0}, left, &negated)) return Overflow();
    return op == BinaryOperator::kModulo ? Value(int64_t{0}) : Value(negated);
  }
  const int64_t remainder = left % right;
  const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
  if (op == BinaryOperator::kModulo) return Value(adjust ? remainder + right : remainder);
  return Value(left / right - (adjust ? 1 : 0));
}

absl::StatusOr<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

absl::StatusOr<Value> IntegerArithmetic(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      return __builtin_add_overflow(left, right, &result) ? absl::StatusOr<Value>(Overflow()) : Value(result);
    case BinaryOperator::kSubtract:
      return __builtin_sub_overflow(left, right, &result) ? absl::StatusOr<Value>(Overflow()) : Value(result);
    case BinaryOperator::kMultiply:
      return __builtin_mul_overflow(left, right, &result) ? absl::StatusOr<Value>(Overflow()) : Value(result);
    case BinaryOperator::kDivide:
      if (right == 0) return DivisionByZero();
      return Value(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::kPower:
      return PowerOfIntegers(left, right);
    default:
      return DivideIntegers(op, left, right);
  }
}

absl::StatusOr<Value> RealArithmetic(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value(left + right);
    case BinaryOperator::kSubtract:
      return Value(left - right);
    case BinaryOperator::kMultiply:
      return Value(left * right);
    case BinaryOperator::kPower:
      return Value(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) return Value(left / right);
  const double remainder = std::fmod(left, right);
  const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
  if (op == BinaryOperator::kModulo) return Value(adjust ? remainder + right : remainder);
  return Value(std::floor(left / right));
}

// "ab" * 3, [1] * 3
absl::StatusOr<Value> Repeat(const Value& sequence, int64_t times, Budget& budget) {
  if (times < 0) times = 0;
  const std::string* text = sequence.AsString();
  const int64_t cost =
      text != nullptr ? static_cast<int64_t>(text->size())
                      : static_cast<int64_t>(sequence.AsList()->items.size()) * static_cast<int64_t>(sizeof(Value));
  int64_t total = 0;
  if (__builtin_mul_overflow(cost, times, &total)) total = kMaxWork + 1;
  MOE_RETURN_IF_ERROR(budget.Charge(total));
  if (cost == 0) return sequence;
  if (text != nullptr) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += *text;
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.AsList()->items.begin(), sequence.AsList()->items.end());
  }
  return Value::MakeList(std::move(items));
}

absl::StatusOr<Value> JoinLists(const List& left, const List& right, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>((left.items.size() + right.items.size()) * sizeof(Value))));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return left.is_tuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

absl::StatusOr<Value> JoinTexts(const std::string& left, const std::string& right, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(left.size() + right.size())));
  return Value(left + right);
}

bool IsSequence(const Value& value) { return value.AsString() != nullptr || value.AsList() != nullptr; }

}  // namespace

absl::StatusOr<std::string> Escaped(const std::string& text, Budget& budget) {
  constexpr int64_t kLongest = 5;
  MOE_RETURN_IF_ERROR(budget.Charge(kLongest * static_cast<int64_t>(text.size())));
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}});
}

absl::StatusOr<Value> ApplyUnary(UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::kNot) return Value(!operand.IsTrue());
  if (const double* real = operand.AsFloat()) return Value(op == UnaryOperator::kNegate ? -*real : *real);
  if (operand.IsIntegral()) {
    if (op == UnaryOperator::kPlus) return Value(operand.Integral());
    return IntegerArithmetic(BinaryOperator::kSubtract, 0, operand.Integral());
  }
  return absl::InvalidArgumentError(Concat("a sign cannot precede ", operand.TypeName()));
}

absl::StatusOr<Value> ApplyBinary(BinaryOperator op, const Value& left, const Value& right, Budget& budget) {
  if (op == BinaryOperator::kConcatenate) {
    MOE_ASSIGN_OR_RETURN(const std::string left_text, ToText(left, &budget));
    MOE_ASSIGN_OR_RETURN(const std::string right_text, ToText(right, &budget));
    return JoinTexts(left_text, right_text, budget);
  }
  if (left.IsIntegral() && right.IsIntegral()) return IntegerArithmetic(op, left.Integral(), right.Integral());
  if (left.IsNumber() && right.IsNumber()) return RealArithmetic(op, left.Number(), right.Number());
  const auto is_integer = [](const Value& value) { return value.IsIntegral() || value.AsBigDigits() != nullptr; };
  if (is_integer(left) && is_integer(right)) return Overflow();
  if (op == BinaryOperator::kAdd && left.AsString() != nullptr && right.AsString() != nullptr &&
      left.IsMarkup() != right.IsMarkup()) {
    const Value& plain = left.IsMarkup() ? right : left;
    MOE_ASSIGN_OR_RETURN(const std::string escaped, Escaped(*plain.AsString(), budget));
    MOE_ASSIGN_OR_RETURN(const Value joined, left.IsMarkup() ? JoinTexts(*left.AsString(), escaped, budget)
                                                             : JoinTexts(escaped, *right.AsString(), budget));
    return Value::MakeMarkup(*joined.AsString());
  }
  if (op == BinaryOperator::kModulo && left.AsString() != nullptr) {
    const bool is_tuple = right.AsList() != nullptr && right.AsList()->is_tuple;
    MOE_ASSIGN_OR_RETURN(
        std::string text,
        FormatPercent(*left.AsString(), is_tuple ? std::span(right.AsList()->items) : std::span(&right, 1), budget));
    return Value(std::move(text));
  }
  if (op == BinaryOperator::kAdd && left.AsString() != nullptr && right.AsString() != nullptr) {
    return JoinTexts(*left.AsString(), *right.AsString(), budget);
  }
  if (op == BinaryOperator::kAdd && left.AsList() != nullptr && right.AsList() != nullptr) {
    return JoinLists(*left.AsList(), *right.AsList(), budget);
  }
  if (op == BinaryOperator::kMultiply && IsSequence(left) && right.IsIntegral()) {
    return Repeat(left, right.Integral(), budget);
  }
  if (op == BinaryOperator::kMultiply && left.IsIntegral() && IsSequence(right)) {
    return Repeat(right, left.Integral(), budget);
  }
  return WrongTypes(op, left, right);
}

}  // namespace moestro::text::jinja
