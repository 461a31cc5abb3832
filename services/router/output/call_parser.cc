#include "services/router/output/call_parser.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace moestro::router {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || absl::ascii_isalnum(byte) || std::string_view("_-.:/").find(c) != std::string_view::npos;
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

bool MayBeName(std::string_view text) {
  return text.size() <= kMaxNameBytes && std::ranges::all_of(Trimmed(text), IsNameByte);
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
      return NewJsonCalls(syntax, out);
    case CallSyntax::kQwenCoder:
    case CallSyntax::kGlm:
    case CallSyntax::kMiniMax:
      return NewXmlCalls(syntax, options.tools, out);
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
