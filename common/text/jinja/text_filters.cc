#include <algorithm>
#include <array>
#include <cstdio>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

// Of indentations and of the fields of format: far more than any prompt has.
constexpr int64_t kMaxWidth = 1000;

// Text filters take any value in its printed form, as in Jinja.
absl::StatusOr<std::string> TextOf(const Value& self, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  // Pays for the result, which is not longer unless the filter charges more.
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size())));
  return text;
}

Result TrimFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  const Function* method = FindMethod(Value(""), "strip");
  return method->call(Value(std::move(text)), args, budget);
}

template <std::string (*convert)(std::string_view)>
Result ConvertFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  return Value(convert(text));
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

// indent(width = 4, first = false, blank = false): the width may be a string
Result IndentFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, TextOf(self, budget));
  text += '\n';  // Jinja2 does this, so that a line end at the end of the text stays
  std::string indentation;
  if (const std::string* given = args[0].AsString()) {
    indentation = *given;
  } else {
    MOE_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(args[0], 4, "width"));
    if (width > kMaxWidth) return absl::InvalidArgumentError(Concat("'width' is over ", kMaxWidth));
    indentation.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::vector<std::string_view> lines = SplitLines(text, /*keep_ends=*/false);
  const bool blank = args[2].IsTrue();
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool indented = i == 0 ? args[1].IsTrue() : blank || !lines[i].empty();
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(indentation.size() + sizeof(std::string_view))));
    if (i > 0) out += '\n';
    if (indented) out += indentation;
    out += lines[i];
  }
  return Value(std::move(out));
}

// One "%..." of a format.
struct Conversion {
  std::string flags;
  int64_t width = 0;
  int64_t precision = -1;
  char kind = 0;
};

absl::StatusOr<int64_t> TakeNumber(std::string_view* text) {
  int64_t number = 0;
  while (!text->empty() && text->front() >= '0' && text->front() <= '9') {
    number = number * 10 + (text->front() - '0');
    if (number > kMaxWidth) return absl::InvalidArgumentError(Concat("a width or precision is over ", kMaxWidth));
    text->remove_prefix(1);
  }
  return number;
}

// Takes what follows "%".
absl::StatusOr<Conversion> TakeConversion(std::string_view* text) {
  Conversion conversion;
  while (!text->empty() && std::string_view("-+ 0").find(text->front()) != std::string_view::npos) {
    if (conversion.flags.find(text->front()) == std::string::npos) conversion.flags += text->front();
    text->remove_prefix(1);
  }
  MOE_ASSIGN_OR_RETURN(conversion.width, TakeNumber(text));
  if (text->starts_with('.')) {
    text->remove_prefix(1);
    MOE_ASSIGN_OR_RETURN(conversion.precision, TakeNumber(text));
  }
  if (text->empty()) return absl::InvalidArgumentError("incomplete format");
  conversion.kind = text->front();
  text->remove_prefix(1);
  return conversion;
}

absl::StatusOr<std::string> ConvertNumber(const Conversion& conversion, const Value& value) {
  const bool is_real = std::string_view("eEfFgG").find(conversion.kind) != std::string_view::npos;
  if (!value.IsNumber()) {
    return absl::InvalidArgumentError(
        Concat("%", std::string(1, conversion.kind), " needs a number, not ", value.TypeName()));
  }
  if (!is_real && !value.IsIntegral() && !(value.Number() > -9.2e18 && value.Number() < 9.2e18)) {
    return absl::InvalidArgumentError("a number is out of range");
  }
  std::string format = Concat("%", conversion.flags, conversion.width);
  if (conversion.width == 0) format.pop_back();
  if (conversion.precision >= 0) format += Concat(".", conversion.precision);
  // Enough for the 309 digits of the largest number, its fraction and the padding.
  std::array<char, 320 + 2 * kMaxWidth> buffer;
  int length = 0;
  if (is_real) {
    format += conversion.kind;
    length = std::snprintf(buffer.data(), buffer.size(), format.c_str(), value.Number());
  } else {
    format += "lld";
    const long long number = value.IsIntegral() ? value.Integral() : static_cast<int64_t>(value.Number());
    length = std::snprintf(buffer.data(), buffer.size(), format.c_str(), number);
  }
  return std::string(buffer.data(), static_cast<size_t>(length));
}

absl::StatusOr<std::string> Convert(const Conversion& conversion, const Value& value, Budget& budget) {
  switch (conversion.kind) {
    case 'd':
    case 'i':
    case 'u':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return ConvertNumber(conversion, value);
    case 's':
      break;
    default:
      return absl::InvalidArgumentError(Concat("conversion '", std::string(1, conversion.kind), "' is not supported"));
  }
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(value, &budget));
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size() * sizeof(size_t))));
  const std::vector<size_t> offsets = CodePointOffsets(text);
  int64_t length = static_cast<int64_t>(offsets.size()) - 1;
  if (conversion.precision >= 0 && conversion.precision < length) {
    length = conversion.precision;
    text.resize(offsets[static_cast<size_t>(length)]);
  }
  const std::string padding(static_cast<size_t>(std::max<int64_t>(conversion.width - length, 0)), ' ');
  return conversion.flags.find('-') == std::string::npos ? padding + text : text + padding;
}

// Python's % with the arguments as a tuple.
Result FormatFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string format, TextOf(self, budget));
  Args rest = args.subspan(Function::kMaxParameters);
  std::string out;
  for (std::string_view text = format; !text.empty();) {
    const size_t percent = text.find('%');
    out += text.substr(0, percent);
    if (percent == std::string_view::npos) break;
    text.remove_prefix(percent + 1);
    MOE_ASSIGN_OR_RETURN(const Conversion conversion, TakeConversion(&text));
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (rest.empty()) return absl::InvalidArgumentError("not enough arguments for the format");
    MOE_ASSIGN_OR_RETURN(const std::string converted, Convert(conversion, rest.front(), budget));
    rest = rest.subspan(1);
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(converted.size())));
    out += converted;
  }
  if (!rest.empty()) return absl::InvalidArgumentError("not all arguments are used by the format");
  return Value(std::move(out));
}

constexpr Function kTextFilters[] = {
    {"capitalize", {}, ConvertFilter<Capitalize>},
    {"format", {}, FormatFilter, 0},
    {"indent", {"width", "first", "blank"}, IndentFilter},
    {"lower", {}, ConvertFilter<Lower>},
    {"replace", {"old", "new", "count"}, ReplaceFilter},
    {"safe", {}, StringFilter},
    {"string", {}, StringFilter},
    {"title", {}, ConvertFilter<Title>},
    {"trim", {"chars"}, TrimFilter},
    {"upper", {}, ConvertFilter<Upper>},
};

}  // namespace

std::span<const Function> TextFilters() { return kTextFilters; }

}  // namespace moestro::text::jinja
