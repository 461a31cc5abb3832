#include "services/router/output/call_parser.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace moestro::router {
namespace {

// Four times as long as OpenAI's API allows.
constexpr size_t kMaxNameBytes = 256;

bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || absl::ascii_isalnum(byte) || std::string_view("_-.:/").find(c) != std::string_view::npos;
}

}  // namespace

bool IsCallName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && std::ranges::all_of(text, IsNameByte);
}

PendingText::Next CallParser::ReadName(const MarkerSet& ends, std::string* name, std::string* raw,
                                       std::string_view* marker) {
  *raw += text_.TakeSpace();
  const bool complete = !name->empty() && kSpace.find(raw->back()) != std::string_view::npos;
  if (!complete) {
    const std::string_view rest = text_.rest();
    const auto end = std::ranges::find_if_not(rest, IsNameByte);
    const std::string_view piece = text_.Take(static_cast<size_t>(end - rest.begin()));
    *name += piece;
    *raw += piece;
    *raw += text_.TakeSpace();
  }
  if (name->size() > kMaxNameBytes) return PendingText::Next::kOther;
  return text_.TakeMarker(ends, marker);
}

std::unique_ptr<CallParser> NewCallParser(CallSyntax syntax, const ParserOptions& options, OutputWriter& out) {
  switch (syntax) {
    case CallSyntax::kNone:
      return nullptr;
    case CallSyntax::kDeepSeek:
    case CallSyntax::kKimi:
      return NewSectionedCalls(syntax, out);
    case CallSyntax::kHermes:
    case CallSyntax::kMistral:
    case CallSyntax::kLlama:
      return NewJsonCalls(syntax, options, out);
    case CallSyntax::kQwenCoder:
    case CallSyntax::kGlm:
    case CallSyntax::kMiniMax:
      return NewXmlCalls(syntax, options, out);
    case CallSyntax::kHarmony:
      return NewHarmonyParser(options.parse_tools, out);
  }
  return nullptr;
}

std::vector<std::string> CallMarkers(CallSyntax syntax) {
  switch (syntax) {
    case CallSyntax::kNone:
      return {};
    case CallSyntax::kDeepSeek:
    case CallSyntax::kKimi:
      return SectionMarkers(syntax);
    case CallSyntax::kHermes:
    case CallSyntax::kMistral:
    case CallSyntax::kLlama:
      return JsonCallMarkers(syntax);
    case CallSyntax::kQwenCoder:
    case CallSyntax::kGlm:
    case CallSyntax::kMiniMax:
      return XmlCallMarkers(syntax);
    case CallSyntax::kHarmony:
      return HarmonyMarkers();
  }
  return {};
}

}  // namespace moestro::router
