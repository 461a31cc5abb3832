#include <algorithm>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"
#include "common/text/jinja/text_format.h"

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

Result FormatFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string format, TextOf(self, budget));
  MOE_ASSIGN_OR_RETURN(std::string text, FormatPercent(format, args.subspan(Function::kMaxParameters), budget));
  return Value(std::move(text));
}

Result SafeFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::string text, ToText(self, &budget));
  return Value::MakeMarkup(std::move(text));
}

// escape, and forceescape, which escapes what is escaped, too.
template <bool always>
Result EscapeFilter(const Value& self, Args, Budget& budget) {
  if (self.IsMarkup() && !always) return self;
  MOE_ASSIGN_OR_RETURN(const std::string text, ToText(self, &budget));
  MOE_ASSIGN_OR_RETURN(std::string escaped, Escaped(text, budget));
  return Value::MakeMarkup(std::move(escaped));
}

Result WordCountFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  return Value(static_cast<int64_t>(SplitSpace(text, -1).size()));
}

Result CenterFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string text, TextOf(self, budget));
  const Value arguments[] = {args[0].IsUndefined() ? Value(int64_t{80}) : args[0], Value()};
  return FindMethod(Value(""), "center")->call(Value(text), std::span(arguments), budget);
}

constexpr Function kTextFilters[] = {
    {"capitalize", {}, ConvertFilter<Capitalize>},
    {"center", {"width"}, CenterFilter},
    {"e", {}, EscapeFilter<false>},
    {"escape", {}, EscapeFilter<false>},
    {"forceescape", {}, EscapeFilter<true>},
    {"format", {}, FormatFilter, 0},
    {"indent", {"width", "first", "blank"}, IndentFilter},
    {"lower", {}, ConvertFilter<Lower>},
    {"replace", {"old", "new", "count"}, ReplaceFilter},
    {"safe", {}, SafeFilter},
    {"string", {}, StringFilter},
    {"title", {}, ConvertFilter<Title>},
    {"trim", {"chars"}, TrimFilter},
    {"upper", {}, ConvertFilter<Upper>},
    {"wordcount", {}, WordCountFilter},
};

}  // namespace

std::span<const Function> TextFilters() { return kTextFilters; }

}  // namespace moestro::text::jinja
