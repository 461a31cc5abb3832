#include "services/router/output/answer_grammar.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/schema_reference.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"
#include "services/router/output/argument_types.h"
#include "services/router/output/call_parser.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// More calls in one answer are a model that does not find its end.
constexpr int kMostCalls = 32;
constexpr char kAnyObject[] = R"({"type": "object"})";

// The notation of common/text/grammar/README.md.
std::string Literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (byte < 0x20) {
      absl::StrAppendFormat(&literal, "\\x%02x", byte);
    } else {
      literal += c;
    }
  }
  return literal + "\"";
}
std::string Token(std::string_view marker) { return absl::StrCat("%token ", Literal(marker)); }
std::string Without(std::string_view text) { return absl::StrCat("%without ", Literal(text)); }
std::string Until(std::string_view end) { return absl::StrCat("%until ", Literal(end)); }
std::string Json(std::string_view schema) { return absl::StrCat("%json ", std::string(schema)); }

// Parts one after the other; the text of markers is a token, all other text is not.
template <typename... Parts>
std::string Row(const Parts&... parts) {
  std::string row;
  (absl::StrAppend(&row, row.empty() ? "" : " ", std::string(parts)), ...);
  return row;
}

struct Function {
  std::string name;
  std::string schema;  // of its arguments: of objects only
  bool strict = false;
};

// The schema of the arguments, if it is one of objects and can be enforced.
absl::StatusOr<std::string> ArgumentsSchema(std::string_view written, bool strict, const std::string& field,
                                            ConstraintCheck& constraints) {
  if (written.empty() || written == "null") return R"({"type": "object", "properties": {}})";
  const json schema = json::parse(written.begin(), written.end(), nullptr, /*allow_exceptions=*/false);
  if (!schema.is_object()) return absl::InvalidArgumentError(absl::StrCat(field, ": must be a schema"));
  const bool is_of_objects = schema.contains("type") ? schema["type"] == "object" : schema.contains("properties");
  if (is_of_objects || strict) {
    const std::string text(written);
    const absl::Status status = constraints.Compile({Constraint::Kind::kJsonSchema, text});
    if (constraints.is_interrupted()) return status;
    if (status.ok() && is_of_objects) return text;
    if (strict && !status.ok()) return Annotate(status, field);
    if (strict) return absl::InvalidArgumentError(absl::StrCat(field, ": must have the type object"));
  }
  return kAnyObject;
}

absl::StatusOr<std::vector<Function>> FunctionsOf(const CallRules& rules, ConstraintCheck& constraints) {
  std::vector<Function> functions;
  const std::vector<std::string_view> tools = text::RawElements(rules.tools);
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string field = absl::StrCat("tools[", i, "].function.");
    const std::string_view written = text::RawField(tools[i], "function");
    const json name = json::parse(text::RawField(written, "name"), nullptr, /*allow_exceptions=*/false);
    if (!name.is_string() || !IsCallName(name.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "name: must be letters, digits and _ - . : / for calls that are forced or strict"));
    }
    const auto is_this = [&](const std::string& one) { return name == one; };
    if (!rules.names.empty() && std::ranges::none_of(rules.names, is_this)) continue;
    Function function{
        .name = name.get<std::string>(), .schema = {}, .strict = text::RawField(written, "strict") == "true"};
    MOE_ASSIGN_OR_RETURN(function.schema, ArgumentsSchema(text::RawField(written, "parameters"), function.strict,
                                                          field + "parameters", constraints));
    functions.push_back(std::move(function));
  }
  for (const std::string& name : rules.names) {
    if (std::ranges::find(functions, name, &Function::name) != functions.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tool_choice: ", text::Quoted(name), " is none of the functions in tools"));
  }
  if (functions.empty()) return absl::InvalidArgumentError("tool_choice: asks for a call, and there are no tools");
  return functions;
}

// What a syntax writes around calls, in parts of a grammar.
struct Frame {
  const char* mark = "";  // with which the text of calls begins, and no other text; empty: there is none
  std::string begin = {};
  std::string between = "\"\"";
  std::string end = {};
  bool several = true;
};

Frame FrameOf(const OutputFormat& format) {
  switch (format.calls) {
    case CallSyntax::kDeepSeek:
      return {.mark = "<｜tool▁calls▁begin｜>",
              .begin = Token("<｜tool▁calls▁begin｜>"),
              .between = format.fenced_calls ? Literal("\n") : Literal(""),
              .end = Token("<｜tool▁calls▁end｜>")};
    case CallSyntax::kKimi:
      return {.mark = "<|tool_calls_section_begin|>",
              .begin = Token("<|tool_calls_section_begin|>"),
              .end = Token("<|tool_calls_section_end|>")};
    case CallSyntax::kHermes:
    case CallSyntax::kQwenCoder:
    case CallSyntax::kGlm:
      return {.mark = "<tool_call>", .between = Literal("\n")};
    case CallSyntax::kMiniMax:
      return {.mark = "<minimax:tool_call>",
              .begin = Row(Token("<minimax:tool_call>"), Literal("\n")),
              .end = Token("</minimax:tool_call>")};
    case CallSyntax::kMistral:
      return {.mark = "[TOOL_CALLS]",
              .begin = Row(Token("[TOOL_CALLS]"), "[ ]?", Literal("[")),
              .between = Literal(", "),
              .end = Literal("]")};
    case CallSyntax::kLlama:
    case CallSyntax::kHarmony:
    case CallSyntax::kNone:
      break;
  }
  return {.several = false};
}

// Arguments in tags.
struct TagStyle {
  const char* key_open;
  const char* key_end;
  const char* value_open;  // with the white space before it
  const char* line;        // around the value
  const char* value_end;
  bool tokens;  // the tags may be special tokens
};
constexpr TagStyle kQwenCoder = {"<parameter=", ">", "", "\n", "</parameter>", false};
constexpr TagStyle kGlm = {"<arg_key>", "</arg_key>", "<arg_value>", "", "</arg_value>", true};
constexpr TagStyle kMiniMax = {"<parameter name=\"", "\">", "", "", "</parameter>", false};

// The schema that one stands for: what it refers to, or the only one of its allOf.
const ordered_json& Meant(const ordered_json& schema, const ordered_json& root) {
  constexpr int kMostSteps = 8;  // references may go round in a circle
  const ordered_json* at = &schema;
  for (int step = 0; step < kMostSteps && at->is_object(); ++step) {
    if (const auto reference = at->find("$ref"); reference != at->end() && reference->is_string()) {
      const auto target = text::grammar::FindTarget(root, reference->get<std::string>(), /*where=*/"");
      if (!target.ok()) break;
      at = *target;
    } else if (const auto all = at->find("allOf"); all != at->end() && all->is_array() && all->size() == 1) {
      at = &all->front();
    } else {
      break;
    }
  }
  return *at;
}

// The texts that an enumeration of strings allows; none: it is no such enumeration.
std::vector<std::string> EnumeratedTexts(const ordered_json& schema) {
  std::vector<std::string> texts;
  if (!schema.is_object()) return texts;
  const auto add = [&](const ordered_json& value) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
    return value.is_string();
  };
  if (schema.contains("const")) {
    add(schema["const"]);
  } else if (schema.contains("enum") && schema["enum"].is_array() && !std::ranges::all_of(schema["enum"], add)) {
    texts.clear();
  }
  return texts;
}

// A value and the tag that ends it. `root`: the function's schema.
absl::StatusOr<std::string> TaggedValue(const ordered_json& schema, const ordered_json& root, const TagStyle& style,
                                        ConstraintCheck& constraints) {
  const std::string end = style.tokens ? Token(style.value_end) : Literal(style.value_end);
  const auto framed = [&](const std::string& value) {
    return *style.line == 0 ? Row(value, end) : Row(Literal(style.line), value, Literal(style.line), end);
  };
  const std::string free = *style.line == 0 ? Until(style.value_end) : Row(Literal(style.line), Until(style.value_end));
  if (!schema.is_object()) return free;
  if (const std::vector<std::string> texts = EnumeratedTexts(Meant(schema, root)); !texts.empty()) {
    std::string alternatives;
    for (const std::string& text : texts) {
      if (text.find(style.value_end) != std::string::npos || Trimmed(text) != text) return free;
      absl::StrAppend(&alternatives, alternatives.empty() ? "" : " | ", Literal(text));
    }
    return framed(absl::StrCat("(", alternatives, ")"));
  }
  if (AllowsStrings(schema, root)) return free;
  ordered_json whole = schema;
  for (const char* key : {"$defs", "definitions"}) {
    if (root.contains(key)) whole[key] = root[key];
  }
  const std::string text = whole.dump();
  const absl::Status status = constraints.Compile({Constraint::Kind::kJsonSchema, text});
  if (constraints.is_interrupted()) return status;
  return framed(Json(status.ok() ? text : "{}"));
}

// Arguments in the order of the schema; those that are not required may be absent.
absl::StatusOr<std::string> TaggedArguments(const Function& function, const TagStyle& style, const std::string& after,
                                            ConstraintCheck& constraints) {
  const ordered_json schema = ordered_json::parse(function.schema);
  const ordered_json none = ordered_json::object();
  const ordered_json& properties = schema.contains("properties") ? schema["properties"] : none;
  const ordered_json required = schema.value("required", ordered_json::array());
  std::string arguments;
  for (const auto& [key, value] : properties.items()) {
    const auto tag = [&](const char* text) { return style.tokens ? Token(text) : Literal(text); };
    std::string argument = Row(tag(style.key_open), Literal(key), tag(style.key_end));
    if (*style.value_open != 0) argument = Row(argument, Literal("\n"), Token(style.value_open));
    MOE_RETURN_IF_ERROR(constraints.SpendBytes(function.schema.size()));  // each property has a copy of the definitions
    MOE_ASSIGN_OR_RETURN(const std::string tagged, TaggedValue(value, schema, style, constraints));
    argument = Row(argument, tagged, after);
    const bool is_required = std::ranges::find(required, ordered_json(key)) != required.end();
    absl::StrAppend(&arguments, " (", argument, is_required ? ")" : ")?");
    if (arguments.size() > text::grammar::kMaxConstraintBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tools: what function ", QuotedJson(function.name), " allows takes more than ",
                       text::grammar::kMaxConstraintBytes,
                       " bytes, as each of its properties repeats the definitions of its schema"));
    }
  }
  return arguments;
}

// {"name": ..., "KEY": arguments}
std::string JsonCall(const Function& function, const char* key) {
  return Row(Literal(absl::StrCat("{\"name\": ", QuotedJson(function.name), ", \"", key, "\": ")),
             Json(function.schema), Literal("}"));
}

absl::StatusOr<std::string> CallOf(const OutputFormat& format, const Function& function, ConstraintCheck& constraints) {
  const std::string& name = function.name;
  const std::string line = Literal("\n");
  switch (format.calls) {
    case CallSyntax::kDeepSeek:
      if (format.fenced_calls) {
        return Row(Token("<｜tool▁call▁begin｜>"), Literal("function"), Token("<｜tool▁sep｜>"),
                   Literal(name + "\n```json\n"), Json(function.schema), Literal("\n```"),
                   Token("<｜tool▁call▁end｜>"));
      }
      return Row(Token("<｜tool▁call▁begin｜>"), Literal(name), Token("<｜tool▁sep｜>"), Json(function.schema),
                 Token("<｜tool▁call▁end｜>"));
    case CallSyntax::kKimi:
      return Row(Token("<|tool_call_begin|>"), Literal("functions." + name + ":"), "[0-9]{1,3}",
                 Token("<|tool_call_argument_begin|>"), Json(function.schema), Token("<|tool_call_end|>"));
    case CallSyntax::kHermes:
      return Row(Token("<tool_call>"), line, JsonCall(function, "arguments"), line, Token("</tool_call>"));
    case CallSyntax::kQwenCoder: {
      MOE_ASSIGN_OR_RETURN(const std::string arguments, TaggedArguments(function, kQwenCoder, line, constraints));
      return Row(Token("<tool_call>"), Literal("\n<function=" + name + ">\n"), arguments, Literal("</function>\n"),
                 Token("</tool_call>"));
    }
    case CallSyntax::kGlm: {
      MOE_ASSIGN_OR_RETURN(const std::string arguments, TaggedArguments(function, kGlm, line, constraints));
      return Row(Token("<tool_call>"), Literal(name + "\n"), arguments, Token("</tool_call>"));
    }
    case CallSyntax::kMiniMax: {
      MOE_ASSIGN_OR_RETURN(const std::string arguments, TaggedArguments(function, kMiniMax, line, constraints));
      return Row(Literal("<invoke name=\"" + name + "\">\n"), arguments, Literal("</invoke>\n"));
    }
    case CallSyntax::kMistral:
      return JsonCall(function, "arguments");
    case CallSyntax::kLlama:
      return JsonCall(function, "parameters");
    case CallSyntax::kHarmony:
      return Row(Token("<|channel|>"), Literal("commentary to=functions." + name + " "), Token("<|constrain|>"),
                 Literal("json"), Token("<|message|>"), Json(function.schema), "(", Token("<|call|>"), ")?");
    case CallSyntax::kNone:
      break;
  }
  return std::string();
}

// A rule "root" for `answer`, a part of a grammar, behind reasoning as the format has it.
std::string Rooted(const OutputFormat& format, bool reasoning_open, const std::string& answer) {
  constexpr char kSpaces[] = "[ \\n]{0,4}";
  std::string reasoning;
  if (format.calls == CallSyntax::kHarmony) {
    reasoning = absl::StrCat("(",
                             Row(Token("<|channel|>"), Literal("analysis"), Token("<|message|>"), Until("<|end|>"),
                                 Token("<|start|>"), Literal("assistant")),
                             ")?");
  } else if (reasoning_open) {
    reasoning = Row(Until("</think>"), kSpaces);
  } else if (format.thinks) {
    reasoning = Row("(", Literal("\n"), "?", Token("<think>"), Until("</think>"), kSpaces, ")?");
  }
  return absl::StrCat("root ::= ", reasoning, " (", answer, ")\n");
}

// The text of any constraint as a part of a grammar.
std::string PartOf(const Constraint& constraint) {
  switch (constraint.kind) {
    case Constraint::Kind::kJsonSchema:
      return Json(constraint.text);
    case Constraint::Kind::kGrammar:
      return absl::StrCat("%grammar ", Literal(constraint.text));
    case Constraint::Kind::kRegex:
      return absl::StrCat("%regex ", Literal(constraint.text));
    default:
      return Json(kAnyObject);
  }
}

}  // namespace

bool CanLeaveCallsOpen(const OutputFormat& format) { return *FrameOf(format).mark != 0; }

bool HasStrictTool(std::string_view tools) {
  return std::ranges::any_of(text::RawElements(tools), [](std::string_view tool) {
    return text::RawField(text::RawField(tool, "function"), "strict") == "true";
  });
}

absl::StatusOr<Constraint> ConstrainToCalls(const OutputFormat& format, const CallRules& rules,
                                            ConstraintCheck& constraints) {
  if (format.calls == CallSyntax::kNone) {
    return absl::UnimplementedError("tool_choice: this model's template has no calls that could be forced");
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<Function> functions, FunctionsOf(rules, constraints));
  const Frame frame = FrameOf(format);
  std::string answer = "calls";
  if (rules.otherwise) {
    MOE_CHECK(CanLeaveCallsOpen(format));
    const bool is_free = rules.otherwise->kind == Constraint::Kind::kNone;
    answer = is_free ? Row(Without(frame.mark), "calls?") : Row(PartOf(*rules.otherwise), "| calls");
  }
  std::string grammar = Rooted(format, rules.reasoning_open, answer);
  absl::StrAppend(
      &grammar, "calls ::= ",
      Row(frame.begin, "call",
          frame.several && rules.several ? absl::StrCat("(", frame.between, " call){0,", kMostCalls - 1, "}") : "",
          frame.end),
      "\n");
  std::string call;
  for (size_t i = 0; i < functions.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const std::string syntax, CallOf(format, functions[i], constraints));
    absl::StrAppend(&call, i == 0 ? "" : " | ", "call-", i);
    absl::StrAppend(&grammar, "call-", i, " ::= ", syntax, "\n");
  }
  absl::StrAppend(&grammar, "call ::= ", call, "\n");
  return Constraint{.kind = Constraint::Kind::kGrammar, .text = std::move(grammar)};
}

Constraint AfterReasoning(const OutputFormat& format, bool reasoning_open, const Constraint& answer) {
  const bool is_harmony = format.calls == CallSyntax::kHarmony;
  if (answer.kind == Constraint::Kind::kNone || !(is_harmony || reasoning_open || format.thinks)) return answer;
  std::string part = PartOf(answer);
  if (is_harmony) {
    part = Row(Token("<|channel|>"), Literal("final"), "(", Literal(" "), "?", Token("<|constrain|>"), Literal("json"),
               ")?", Token("<|message|>"), part);
  }
  return {.kind = Constraint::Kind::kGrammar, .text = Rooted(format, reasoning_open, part)};
}

}  // namespace moestro::router
