#include "common/text/jinja/text_format.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

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

// What is behind the colon: [[fill]align][sign][0][width][,][.precision][kind]
struct FieldFormat {
  std::string fill = " ";
  char align = 0;
  bool commas = false;
  Conversion conversion;
};

absl::StatusOr<FieldFormat> ParseFieldFormat(std::string_view text) {
  FieldFormat format;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  if (!text.empty()) {
    const auto first = static_cast<size_t>(Utf8Length(text[0]));
    if (text.size() > first && is_align(text[first])) {
      format.fill = text.substr(0, first);
      text.remove_prefix(first);
    }
    if (is_align(text[0])) {
      format.align = text[0];
      text.remove_prefix(1);
    }
  }
  std::string rest(text);
  if (const size_t comma = rest.find(','); comma != std::string::npos) {
    format.commas = true;
    rest.erase(comma, 1);
  }
  if (rest.empty() || rest.back() == '.' || absl::ascii_isdigit(static_cast<unsigned char>(rest.back()))) rest += '?';
  std::string_view left = rest;
  MOE_ASSIGN_OR_RETURN(format.conversion, TakeConversion(&left));
  if (!left.empty()) return absl::InvalidArgumentError(Concat("format '", text, "' is not supported"));
  return format;
}

// Commas between thousands.
std::string WithCommas(std::string digits) {
  const size_t begin = std::min(digits.find_first_of("0123456789"), digits.size());
  size_t end = std::min(digits.find_first_not_of("0123456789", begin), digits.size());
  for (size_t group = 3; end - begin > group; end -= group) digits.insert(end - group, 1, ',');
  return digits;
}

absl::StatusOr<std::string> FormatField(const Value& value, std::string_view spec, Budget& budget) {
  if (spec.empty()) return ToText(value, &budget);
  MOE_ASSIGN_OR_RETURN(FieldFormat format, ParseFieldFormat(spec));
  Conversion conversion = format.conversion;
  const bool is_number = value.IsNumber() && value.AsBool() == nullptr;
  if (conversion.kind == '?') conversion.kind = !is_number ? 's' : value.IsIntegral() ? 'd' : 'g';
  if (format.conversion.kind == '?' && is_number && !value.IsIntegral() && conversion.precision < 0)
    conversion.kind = 's';
  const int64_t width = conversion.width;
  const bool pads_zeros = conversion.flags.find('0') != std::string::npos && format.align == 0;
  if (!pads_zeros || format.commas) conversion.width = 0;
  MOE_ASSIGN_OR_RETURN(std::string text, Convert(conversion, value, budget));
  if (format.commas) text = WithCommas(std::move(text));
  const char align = format.align != 0 ? format.align : is_number ? '>' : '<';
  const char* method = align == '<' ? "ljust" : align == '>' ? "rjust" : "center";
  const Value arguments[] = {Value(width), Value(format.fill)};
  if (align == '^') {  // of an odd rest, the larger half stands behind
    const int64_t missing = std::max<int64_t>(width - CodePointCount(text), 0);
    const Value left[] = {Value(CodePointCount(text) + missing / 2), Value(format.fill)};
    MOE_ASSIGN_OR_RETURN(const Value half, FindMethod(Value(""), "rjust")->call(Value(text), std::span(left), budget));
    MOE_ASSIGN_OR_RETURN(const Value whole, FindMethod(Value(""), "ljust")->call(half, std::span(arguments), budget));
    return *whole.AsString();
  }
  MOE_ASSIGN_OR_RETURN(const Value padded,
                       FindMethod(Value(""), method)->call(Value(text), std::span(arguments), budget));
  return *padded.AsString();
}

// The value that "0", "name", "name.member" or nothing (the next one) stands for.
absl::StatusOr<Value> FieldValue(std::string_view field, std::span<const Value> positional, const Dict* named,
                                 size_t* next, Budget& budget) {
  const size_t dot = std::min(field.find('.'), field.size());
  const std::string name(field.substr(0, dot));
  Value value;
  if (name.find_first_not_of("0123456789") == std::string::npos && name.size() < 9) {
    const size_t position = name.empty() ? (*next)++ : std::strtoul(name.c_str(), nullptr, 10);
    if (position >= positional.size()) return absl::InvalidArgumentError("not enough arguments for the format");
    value = positional[position];
  } else {
    const Value* found = nullptr;
    if (named != nullptr) {
      MOE_ASSIGN_OR_RETURN(found, named->Find(name, budget));
    }
    if (found == nullptr)
      return absl::InvalidArgumentError(Concat("the format names '", name, "', which is not given"));
    value = *found;
  }
  return dot == field.size() ? value : GetPath(value, Value(field.substr(dot + 1)), budget);
}

}  // namespace

absl::StatusOr<std::string> FormatPercent(const std::string& format, std::span<const Value> arguments, Budget& budget) {
  const Dict* members = arguments.size() == 1 ? arguments[0].AsDict() : nullptr;
  bool by_name = false;
  std::string out;
  for (std::string_view text = format; !text.empty();) {
    const size_t percent = text.find('%');
    out += text.substr(0, percent);
    if (percent == std::string_view::npos) break;
    text.remove_prefix(percent + 1);
    std::optional<Value> named;
    if (text.starts_with('(') && members != nullptr) {
      MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size())));  // for the end of the name
      const size_t end = text.find(')');
      if (end == std::string_view::npos) return absl::InvalidArgumentError("incomplete format");
      MOE_ASSIGN_OR_RETURN(const Value* member, members->Find(text.substr(1, end - 1), budget));
      if (member == nullptr) return absl::InvalidArgumentError("the format names a member that the dict lacks");
      named = *member;
      by_name = true;
      text.remove_prefix(end + 1);
    }
    MOE_ASSIGN_OR_RETURN(const Conversion conversion, TakeConversion(&text));
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (!named.has_value()) {
      if (arguments.empty()) return absl::InvalidArgumentError("not enough arguments for the format");
      named = arguments.front();
      arguments = arguments.subspan(1);
    }
    MOE_ASSIGN_OR_RETURN(const std::string converted, Convert(conversion, *named, budget));
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(converted.size())));
    out += converted;
  }
  if (!arguments.empty() && !by_name) return absl::InvalidArgumentError("not all arguments are used by the format");
  return out;
}

absl::StatusOr<std::string> FormatFields(const std::string& format, std::span<const Value> positional,
                                         const Dict* named, Budget& budget) {
  std::string out;
  size_t next = 0;
  for (std::string_view text = format; !text.empty();) {
    const size_t brace = text.find_first_of("{}");
    out += text.substr(0, brace);
    if (brace == std::string_view::npos) break;
    text.remove_prefix(brace + 1);
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    if (text.starts_with(format[static_cast<size_t>(text.data() - format.data()) - 1])) {  // doubled: itself
      out += text[0];
      text.remove_prefix(1);
      continue;
    }
    const size_t close = text.find('}');
    if (format[static_cast<size_t>(text.data() - format.data()) - 1] == '}' || close == std::string_view::npos) {
      return absl::InvalidArgumentError("a single brace in the format");
    }
    const std::string_view field = text.substr(0, close);
    text.remove_prefix(close + 1);
    const size_t colon = std::min(field.find(':'), field.size());
    MOE_ASSIGN_OR_RETURN(const Value value, FieldValue(field.substr(0, colon), positional, named, &next, budget));
    MOE_ASSIGN_OR_RETURN(const std::string written,
                         FormatField(value, field.substr(std::min(colon + 1, field.size())), budget));
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(written.size())));
    out += written;
  }
  return out;
}

}  // namespace moestro::text::jinja
