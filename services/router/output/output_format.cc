#include "services/router/output/output_format.h"

#include <algorithm>
#include <utility>

#include "services/router/output/call_parser.h"

namespace moestro::router {
namespace {

// What a template mentions if its model writes calls so. The first that fits decides: <tool_call> alone is Hermes.
struct Mark {
  const char* text;
  CallSyntax syntax;
};
constexpr Mark kMarks[] = {
    {"<|channel|>", CallSyntax::kHarmony},
    {"<｜tool▁call", CallSyntax::kDeepSeek},
    {"<|tool_call_begin|>", CallSyntax::kKimi},
    {"<minimax:tool_call>", CallSyntax::kMiniMax},
    {"<arg_key>", CallSyntax::kGlm},
    {"<function=", CallSyntax::kQwenCoder},
    {"<tool_call>", CallSyntax::kHermes},
    {"[TOOL_CALLS]", CallSyntax::kMistral},
    {"<|python_tag|>", CallSyntax::kLlama},
};

CallSyntax FindSyntax(std::string_view family, std::string_view templates) {
  if (family == "gpt_oss") return CallSyntax::kHarmony;
  for (const Mark& mark : kMarks) {
    if (templates.find(mark.text) != std::string_view::npos) return mark.syntax;
  }
  // Llama's calls need no marker.
  const bool takes_tools = templates.find("tool_calls") != std::string_view::npos;
  return family == "llama" && takes_tools ? CallSyntax::kLlama : CallSyntax::kNone;
}

}  // namespace

OutputFormat FindOutputFormat(std::string_view family, std::string_view templates,
                              const std::vector<std::string>& special_tokens) {
  OutputFormat format;
  format.calls = FindSyntax(family, templates);
  format.thinks = format.calls != CallSyntax::kHarmony && templates.find("</think>") != std::string_view::npos;
  format.fenced_calls = format.calls == CallSyntax::kDeepSeek && templates.find("```json") != std::string_view::npos;
  const std::vector<std::string> markers = CallMarkers(format.calls);
  std::vector<std::string> control;
  for (const std::string& token : special_tokens) {
    const bool is_marker = token == "<think>" || token == "</think>" || std::ranges::count(markers, token) > 0;
    if (!is_marker) control.push_back(token);
  }
  format.control = MarkerSet(std::move(control));
  return format;
}

}  // namespace moestro::router
