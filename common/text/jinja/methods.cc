#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/strings.h"
#include "common/text/jinja/text_format.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

// Of one of many searches in a text.
constexpr int64_t kFindCost = 16;
// Of a part of a text: a value, and a string with its own allocation.
constexpr int64_t kPartCost = 2 * sizeof(Value) + sizeof(std::string);

int64_t Size(const std::string& text) { return static_cast<int64_t>(text.size()); }

template <Side side>
Result Strip(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  if (args[0].IsUndefined() || args[0].IsNone()) {
    MOE_RETURN_IF_ERROR(budget.Charge(2 * Size(text)));
    return Value(StripSpace(text, side));
  }
  MOE_ASSIGN_OR_RETURN(const std::string* characters, StringArgument(args[0], "chars"));
  // Every removed code point is looked up in all of `characters`.
  MOE_RETURN_IF_ERROR(budget.Charge(Size(text)));
  MOE_RETURN_IF_ERROR(budget.Charge(Size(text) * std::min<int64_t>(Size(*characters), 1 << 20)));
  return Value(StripCharacters(text, *characters, side));
}

template <Side side>
Result Split(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument(args[1], -1, "maxsplit"));
  MOE_RETURN_IF_ERROR(budget.Charge(2 * Size(text)));
  std::vector<std::string_view> parts;
  if (args[0].IsUndefined() || args[0].IsNone()) {
    if (side == Side::kRight && limit >= 0) return absl::InvalidArgumentError("needs a separator");
    parts = SplitSpace(text, limit);
  } else {
    MOE_ASSIGN_OR_RETURN(const std::string* separator, StringArgument(args[0], "sep"));
    if (separator->empty()) return absl::InvalidArgumentError("empty separator");
    // From the right, both are copied.
    MOE_RETURN_IF_ERROR(budget.Charge(Size(*separator) + (side == Side::kRight ? Size(text) : 0)));
    parts = SplitAt(text, *separator, limit, side);
  }
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(parts.size()) * kPartCost));
  return Value::MakeList(std::vector<Value>(parts.begin(), parts.end()));
}

// str.startswith and str.endswith take a string or a list of them.
template <bool at_start>
Result HasAffix(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  const auto matches = [&](const std::string& affix) {
    return at_start ? text.starts_with(affix) : text.ends_with(affix);
  };
  if (const List* list = args[0].AsList()) {
    for (const Value& item : list->items) {
      MOE_ASSIGN_OR_RETURN(const std::string* affix, StringArgument(item, "affix"));
      MOE_RETURN_IF_ERROR(budget.Charge(Size(*affix) + 1));
      if (matches(*affix)) return Value(true);
    }
    return Value(false);
  }
  MOE_ASSIGN_OR_RETURN(const std::string* affix, StringArgument(args[0], "affix"));
  MOE_RETURN_IF_ERROR(budget.Charge(Size(*affix)));
  return Value(matches(*affix));
}

Result ReplaceMethod(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_ASSIGN_OR_RETURN(const std::string* from, StringArgument(args[0], "old"));
  MOE_ASSIGN_OR_RETURN(const std::string* to, StringArgument(args[1], "new"));
  MOE_ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument(args[2], -1, "count"));
  if (from->empty()) return absl::InvalidArgumentError("replacing the empty string is not supported");
  // At most one `to` for each match of `from`.
  int64_t most = 0;
  if (__builtin_mul_overflow(Size(text) / Size(*from), Size(*to), &most)) most = kMaxWork;
  MOE_RETURN_IF_ERROR(budget.Charge(2 * Size(text) + Size(*from)));
  MOE_RETURN_IF_ERROR(budget.Charge(Find(text, *from) == std::string::npos ? 0 : most));
  return Value(Replace(text, *from, *to, limit));
}

Result UpperMethod(const Value& self, Args, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(Size(*self.AsString())));
  return Value(Upper(*self.AsString()));
}

Result LowerMethod(const Value& self, Args, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(Size(*self.AsString())));
  return Value(Lower(*self.AsString()));
}

Result CapitalizeMethod(const Value& self, Args, Budget& budget) {
  MOE_RETURN_IF_ERROR(budget.Charge(Size(*self.AsString())));
  return Value(Capitalize(*self.AsString()));
}

Result TitleMethod(const Value& self, Args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_RETURN_IF_ERROR(budget.Charge(Size(text)));
  std::string out = Lower(text);
  bool begins = true;
  for (char& c : out) {
    if (c < 0) return absl::InvalidArgumentError("supports ASCII only");
    const bool is_letter = c >= 'a' && c <= 'z';
    if (begins && is_letter) c = static_cast<char>(c - 'a' + 'A');
    begins = !is_letter;
  }
  return Value(std::move(out));
}

template <Side side>
Result FindInText(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string* part, StringArgument(args[0], "sub"));
  const std::string_view text = *self.AsString();
  MOE_RETURN_IF_ERROR(budget.Charge(3 * static_cast<int64_t>(text.size()) + 2 * Size(*part)));
  if (side == Side::kRight && part->empty()) return Value(CodePointCount(text));
  if (side == Side::kRight) {
    const std::vector<std::string_view> parts = SplitAt(text, *part, 1, side);
    return parts.size() < 2 ? Value(int64_t{-1}) : Value(CodePointCount(parts[0]));
  }
  const size_t at = Find(text, *part);
  return at == std::string::npos ? Value(int64_t{-1}) : Value(CodePointCount(text.substr(0, at)));
}

// str.index and str.rindex
template <Side side>
Result IndexInText(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(Value at, FindInText<side>(self, args, budget));
  if (at.Integral() < 0) return absl::InvalidArgumentError("substring not found");
  return at;
}

// Whether the text is not empty and all its characters are of a kind.
template <bool (*is_kind)(char32_t)>
Result IsAll(const Value& self, Args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_RETURN_IF_ERROR(budget.Charge(Size(text)));
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = ReadUtf8(text, i);
    if (!is_kind(step.code_point)) return Value(false);
    i += step.length;
  }
  return Value(!text.empty());
}

utf8proc_category_t CategoryOf(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
bool IsDecimal(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }
bool IsNumeric(char32_t c) { return CategoryOf(c) >= UTF8PROC_CATEGORY_ND && CategoryOf(c) <= UTF8PROC_CATEGORY_NO; }
bool IsLetter(char32_t c) { return CategoryOf(c) >= UTF8PROC_CATEGORY_LU && CategoryOf(c) <= UTF8PROC_CATEGORY_LO; }
bool IsLetterOrNumber(char32_t c) { return IsLetter(c) || IsNumeric(c); }

template <const char* name>
Result ByTest(const Value& self, Args args, Budget& budget) {
  return FindTest(name)->call(self, args, budget);
}
constexpr char kLowerTest[] = "lower", kUpperTest[] = "upper";

// str.ljust, str.rjust and str.center
template <Side free_side>
Result Justify(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(args[0], 0, "width"));
  if (width > kMaxWidth) return absl::InvalidArgumentError(Concat("'width' is over ", kMaxWidth));
  const std::string blank = " ";
  const std::string* fill = &blank;
  if (!args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(fill, StringArgument(args[1], "fillchar"));
  }
  if (CodePointCount(*fill) != 1) return absl::InvalidArgumentError("'fillchar' must be one character");
  const std::string& text = *self.AsString();
  const int64_t missing = std::max<int64_t>(width - CodePointCount(text), 0);
  MOE_RETURN_IF_ERROR(budget.Charge(2 * Size(text) + missing * Size(*fill)));
  const int64_t left = free_side == Side::kRight  ? 0
                       : free_side == Side::kLeft ? missing
                                                  : missing / 2 + (missing & width & 1);  // as Python rounds
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += *fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += *fill;
  return Value(std::move(out));
}

Result ZeroFill(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  MOE_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(args[0], 0, "width"));
  const Value rest(text.substr(sign));
  const Value arguments[] = {Value(width - static_cast<int64_t>(sign)), Value("0")};
  MOE_ASSIGN_OR_RETURN(const Value filled, Justify<Side::kLeft>(rest, arguments, budget));
  return Value(text.substr(0, sign) + *filled.AsString());
}

// str.format, whose named arguments come as a dict.
Result FormatMethod(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, FormatFields(*self.AsString(), args.subspan(Function::kMaxParameters),
                                                      args[0].AsDict(), budget));
  return Value(std::move(text));
}

// str.count and list.count
Result Count(const Value& self, Args args, Budget& budget) {
  int64_t count = 0;
  if (const List* list = self.AsList()) {
    for (const Value& item : list->items) {
      MOE_ASSIGN_OR_RETURN(const bool equal, Compare(Comparison::kEqual, item, args[0], budget));
      count += equal ? 1 : 0;
    }
    return Value(count);
  }
  MOE_ASSIGN_OR_RETURN(const std::string* part, StringArgument(args[0], "sub"));
  std::string_view text = *self.AsString();
  MOE_RETURN_IF_ERROR(budget.Charge(2 * static_cast<int64_t>(text.size()) + Size(*part)));
  if (part->empty()) return Value(CodePointCount(text) + 1);
  for (size_t at = Find(text, *part); at != std::string_view::npos; at = Find(text, *part), ++count) {
    MOE_RETURN_IF_ERROR(budget.Charge(kFindCost));
    text.remove_prefix(at + part->size());
  }
  return Value(count);
}

// separator.join(list)
Result Join(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(args[0], budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const std::string* text, StringArgument(items[i], "an item"));
    MOE_RETURN_IF_ERROR(budget.Charge(Size(*text) + Size(*self.AsString())));
    if (i > 0) out += *self.AsString();
    out += *text;
  }
  return Value(std::move(out));
}

// str.partition and str.rpartition: what is before the separator, the separator, and what is after it
template <Side side>
Result Partition(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_ASSIGN_OR_RETURN(const std::string* separator, StringArgument(args[0], "sep"));
  if (separator->empty()) return absl::InvalidArgumentError("empty separator");
  MOE_RETURN_IF_ERROR(budget.Charge(4 * Size(text) + 2 * Size(*separator)));
  const std::vector<std::string_view> parts = SplitAt(text, *separator, 1, side);
  if (parts.size() == 2) return Value::MakeTuple({Value(parts[0]), Value(*separator), Value(parts[1])});
  if (side == Side::kRight) return Value::MakeTuple({Value(""), Value(""), self});
  return Value::MakeTuple({self, Value(""), Value("")});
}

template <bool at_start>
Result RemoveAffix(const Value& self, Args args, Budget& budget) {
  std::string_view text = *self.AsString();
  MOE_ASSIGN_OR_RETURN(const std::string* affix, StringArgument(args[0], at_start ? "prefix" : "suffix"));
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size())));
  if (at_start && text.starts_with(*affix)) text.remove_prefix(affix->size());
  if (!at_start && text.ends_with(*affix)) text.remove_suffix(affix->size());
  return Value(text);
}

Result SplitLinesMethod(const Value& self, Args args, Budget& budget) {
  const std::string& text = *self.AsString();
  MOE_RETURN_IF_ERROR(budget.Charge(2 * Size(text)));
  const std::vector<std::string_view> lines = SplitLines(text, args[0].IsTrue());
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(lines.size()) * kPartCost));
  return Value::MakeList(std::vector<Value>(lines.begin(), lines.end()));
}

// list.index
Result Index(const Value& self, Args args, Budget& budget) {
  const std::vector<Value>& items = self.AsList()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const bool equal, Compare(Comparison::kEqual, items[i], args[0], budget));
    if (equal) return Value(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("the value is not in the list");
}

Result Copy(const Value& self, Args, Budget&) { return self; }  // values are immutable

Result Get(const Value& self, Args args, Budget& budget) {
  const Value* value = nullptr;
  if (const absl::StatusOr<std::string> key = DictKey(args[0]); key.ok()) {
    MOE_ASSIGN_OR_RETURN(value, self.AsDict()->Find(*key, budget));
  }
  if (value != nullptr) return *value;
  return args[1].IsUndefined() ? Value(Value::None{}) : args[1];
}

Result Keys(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::vector<Value> keys, Items(self, budget));
  return Value::MakeList(std::move(keys));
}

Result Values(const Value& self, Args, Budget& budget) {
  std::vector<Value> values;
  for (const auto& [key, value] : self.AsDict()->items) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(sizeof(Value))));
    values.push_back(value);
  }
  return Value::MakeList(std::move(values));
}

Result DictItemsMethod(const Value& self, Args, Budget& budget) { return DictItems(*self.AsDict(), budget); }

constexpr Function kTextMethods[] = {
    {"capitalize", {}, CapitalizeMethod},
    {"center", {"width", "fillchar"}, Justify<Side::kBoth>},
    {"count", {"sub"}, Count},
    {"endswith", {"suffix"}, HasAffix<false>},
    {"find", {"sub"}, FindInText<Side::kLeft>},
    {"format", {}, FormatMethod, 0, /*takes_named=*/true},
    {"index", {"sub"}, IndexInText<Side::kLeft>},
    {"isalnum", {}, IsAll<IsLetterOrNumber>},
    {"isalpha", {}, IsAll<IsLetter>},
    {"isdecimal", {}, IsAll<IsDecimal>},
    {"isdigit", {}, IsAll<IsDecimal>},
    {"islower", {}, ByTest<kLowerTest>},
    {"isnumeric", {}, IsAll<IsNumeric>},
    {"isspace", {}, IsAll<IsPythonSpace>},
    {"isupper", {}, ByTest<kUpperTest>},
    {"join", {"iterable"}, Join},
    {"ljust", {"width", "fillchar"}, Justify<Side::kRight>},
    {"lower", {}, LowerMethod},
    {"lstrip", {"chars"}, Strip<Side::kLeft>},
    {"partition", {"sep"}, Partition<Side::kLeft>},
    {"removeprefix", {"prefix"}, RemoveAffix<true>},
    {"removesuffix", {"suffix"}, RemoveAffix<false>},
    {"replace", {"old", "new", "count"}, ReplaceMethod},
    {"rfind", {"sub"}, FindInText<Side::kRight>},
    {"rindex", {"sub"}, IndexInText<Side::kRight>},
    {"rjust", {"width", "fillchar"}, Justify<Side::kLeft>},
    {"rpartition", {"sep"}, Partition<Side::kRight>},
    {"rsplit", {"sep", "maxsplit"}, Split<Side::kRight>},
    {"rstrip", {"chars"}, Strip<Side::kRight>},
    {"split", {"sep", "maxsplit"}, Split<Side::kLeft>},
    {"splitlines", {"keepends"}, SplitLinesMethod},
    {"startswith", {"prefix"}, HasAffix<true>},
    {"strip", {"chars"}, Strip<Side::kBoth>},
    {"title", {}, TitleMethod},
    {"upper", {}, UpperMethod},
    {"zfill", {"width"}, ZeroFill},
};

constexpr Function kListMethods[] = {
    {"copy", {}, Copy},
    {"count", {"value"}, Count},
    {"index", {"value"}, Index},
};

constexpr Function kDictMethods[] = {
    {"copy", {}, Copy}, {"get", {"key", "default"}, Get}, {"items", {}, DictItemsMethod},
    {"keys", {}, Keys}, {"values", {}, Values},
};

const Function* FindIn(std::span<const Function> methods, std::string_view name) {
  for (const Function& method : methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace

const Function* FindMethod(const Value& self, std::string_view name) {
  if (self.AsString() != nullptr) return FindIn(kTextMethods, name);
  if (self.AsList() != nullptr) return FindIn(kListMethods, name);
  if (self.AsDict() != nullptr) return FindIn(kDictMethods, name);
  return nullptr;
}

}  // namespace moestro::text::jinja
