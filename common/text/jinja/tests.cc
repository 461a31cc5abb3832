#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

template <Comparison comparison>
Result CompareTest(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const bool holds, Compare(comparison, self, args[0], budget));
  return Value(holds);
}

Result DefinedTest(const Value& self, Args, Budget&) { return Value(!self.IsUndefined()); }
Result UndefinedTest(const Value& self, Args, Budget&) { return Value(self.IsUndefined()); }
Result NoneTest(const Value& self, Args, Budget&) { return Value(self.IsNone()); }
Result StringTest(const Value& self, Args, Budget&) { return Value(self.AsString() != nullptr); }
Result NumberTest(const Value& self, Args, Budget&) { return Value(self.IsNumber() || self.AsBigDigits() != nullptr); }
Result IntegerTest(const Value& self, Args, Budget&) {
  return Value(self.AsInt() != nullptr || self.AsBigDigits() != nullptr);
}
Result FloatTest(const Value& self, Args, Budget&) { return Value(self.AsFloat() != nullptr); }
Result BooleanTest(const Value& self, Args, Budget&) { return Value(self.AsBool() != nullptr); }
Result MappingTest(const Value& self, Args, Budget&) { return Value(self.AsDict() != nullptr); }
Result TrueTest(const Value& self, Args, Budget&) { return Value(self.AsBool() != nullptr && *self.AsBool()); }
Result FalseTest(const Value& self, Args, Budget&) { return Value(self.AsBool() != nullptr && !*self.AsBool()); }
Result CallableTest(const Value& self, Args, Budget&) {
  return Value(self.AsMacro() != nullptr || self.AsBuiltin() != nullptr);
}

// Strings, lists, dicts and undefined: all values with a length and items.
Result IterableTest(const Value& self, Args, Budget&) {
  return Value(self.IsUndefined() || self.AsString() != nullptr || self.AsList() != nullptr ||
               self.AsDict() != nullptr);
}

// None, booleans and undefined are single objects in Python. Of other values, only the very same could be meant.
Result SameAsTest(const Value& self, Args args, Budget& budget) {
  if (self.TypeName() != args[0].TypeName()) return Value(false);
  MOE_ASSIGN_OR_RETURN(const bool equal, Compare(Comparison::kEqual, self, args[0], budget));
  return Value(equal);
}

// str.islower() and str.isupper(): has letters, and all of this case. `first`: the first letter of the case.
template <char first>
Result CaseTest(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ToText(self, &budget));
  bool found = false;
  for (const char c : text) {
    const char lower = static_cast<char>(c | 0x20);
    if (c < 0) return absl::InvalidArgumentError("supports ASCII only");
    if (lower < 'a' || lower > 'z') continue;
    if (c < first || c >= first + 26) return Value(false);
    found = true;
  }
  return Value(found);
}

Result FilterTest(const Value& self, Args, Budget&) {
  return Value(self.AsString() != nullptr && FindFilter(*self.AsString()) != nullptr);
}
Result TestTest(const Value& self, Args, Budget&) {
  return Value(self.AsString() != nullptr && FindTest(*self.AsString()) != nullptr);
}
Result EscapedTest(const Value& self, Args, Budget&) { return Value(self.IsMarkup()); }

absl::StatusOr<int64_t> IntegerSelf(const Value& self) {
  if (self.IsIntegral()) return self.Integral();
  return absl::InvalidArgumentError(Concat("needs an integer, not ", self.TypeName()));
}

Result OddTest(const Value& self, Args, Budget&) {
  MOE_ASSIGN_OR_RETURN(const int64_t number, IntegerSelf(self));
  return Value(number % 2 != 0);
}

Result EvenTest(const Value& self, Args, Budget&) {
  MOE_ASSIGN_OR_RETURN(const int64_t number, IntegerSelf(self));
  return Value(number % 2 == 0);
}

Result DivisibleByTest(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const Value remainder, ApplyBinary(BinaryOperator::kModulo, self, args[0], budget));
  return Value(!remainder.IsTrue());
}

constexpr Function kTests[] = {
    {"boolean", {}, BooleanTest},
    {"callable", {}, CallableTest},
    {"defined", {}, DefinedTest},
    {"divisibleby", {"num"}, DivisibleByTest},
    {"eq", {"other"}, CompareTest<Comparison::kEqual>},
    {"equalto", {"other"}, CompareTest<Comparison::kEqual>},
    {"==", {"other"}, CompareTest<Comparison::kEqual>},
    {"escaped", {}, EscapedTest},
    {"even", {}, EvenTest},
    {"false", {}, FalseTest},
    {"filter", {}, FilterTest},
    {"float", {}, FloatTest},
    {"ge", {"other"}, CompareTest<Comparison::kGreaterEqual>},
    {"greaterthan", {"other"}, CompareTest<Comparison::kGreater>},
    {"gt", {"other"}, CompareTest<Comparison::kGreater>},
    {">", {"other"}, CompareTest<Comparison::kGreater>},
    {">=", {"other"}, CompareTest<Comparison::kGreaterEqual>},
    {"in", {"seq"}, CompareTest<Comparison::kIn>},
    {"integer", {}, IntegerTest},
    {"iterable", {}, IterableTest},
    {"le", {"other"}, CompareTest<Comparison::kLessEqual>},
    {"lessthan", {"other"}, CompareTest<Comparison::kLess>},
    {"lower", {}, CaseTest<'a'>},
    {"lt", {"other"}, CompareTest<Comparison::kLess>},
    {"<", {"other"}, CompareTest<Comparison::kLess>},
    {"<=", {"other"}, CompareTest<Comparison::kLessEqual>},
    {"mapping", {}, MappingTest},
    {"ne", {"other"}, CompareTest<Comparison::kNotEqual>},
    {"!=", {"other"}, CompareTest<Comparison::kNotEqual>},
    {"none", {}, NoneTest},
    {"number", {}, NumberTest},
    {"odd", {}, OddTest},
    {"sameas", {"other"}, SameAsTest},
    {"sequence", {}, IterableTest},
    {"string", {}, StringTest},
    {"test", {}, TestTest},
    {"true", {}, TrueTest},
    {"undefined", {}, UndefinedTest},
    {"upper", {}, CaseTest<'A'>},
};

}  // namespace

const Function* FindTest(std::string_view name) {
  for (const Function& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace moestro::text::jinja
