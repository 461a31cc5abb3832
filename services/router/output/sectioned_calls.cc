// DeepSeek and Kimi: calls in a section, all of whose markers are special tokens. Arguments are what stands between two
// of them, so they need no look at their JSON.
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/text/concat.h"
#include "services/router/output/call_parser.h"

namespace moestro::router {
namespace {

struct Markers {
  const char* section_begin;
  const char* call_begin;
  const char* separator;
  const char* call_end;
  const char* section_end;
  // The section's as models misspell them.
  const char* other_begin = "";
  const char* other_end = "";
};
constexpr Markers kDeepSeek = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                               "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};
constexpr Markers kKimi = {
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>",         "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    "<|tool_calls_section_end|>",   "<|tool_call_section_begin|>", "<|tool_call_section_end|>"};
const Markers& MarkersOf(CallSyntax syntax) { return syntax == CallSyntax::kKimi ? kKimi : kDeepSeek; }

constexpr char kFence[] = "```json";

// `markers`, and those that mean the same inside and outside of a call.
MarkerSet MarkersWith(const Markers& of, std::vector<std::string> markers) {
  for (const char* marker : {of.call_begin, of.section_begin, of.section_end, of.other_begin, of.other_end}) {
    markers.emplace_back(marker);
  }
  return MarkerSet(std::move(markers));
}

class SectionedCalls final : public CallParser {
 public:
  SectionedCalls(const Markers& markers, bool kimi, OutputWriter& out)
      : CallParser(out),
        kimi_(kimi),
        markers_(markers),
        in_text_(MarkersWith(markers, {})),
        in_header_(MarkersWith(markers, {markers.separator, kFence, markers.call_end})),
        in_arguments_(MarkersWith(markers, {markers.call_end, std::string("```") + markers.call_end,
                                            std::string("```\n") + markers.call_end})) {}

 private:
  enum class State { kText, kHeader, kOpening, kArguments };

  bool Step() override {
    switch (state_) {
      case State::kText:
        return StepText();
      case State::kHeader:
        return StepHeader();
      case State::kOpening:
        return StepOpening();
      case State::kArguments:
        return StepArguments();
    }
    return false;
  }

  void Abandon() override {
    if (state_ != State::kArguments) GiveUp();
  }

  bool GiveUp() {
    out_.Content(std::exchange(raw_, {}));
    state_ = State::kText;
    return true;
  }

  bool BeginCall() {
    raw_ = markers_.call_begin;
    header_.clear();
    fenced_ = false;
    state_ = State::kHeader;
    return true;
  }

  // The markers of the section say nothing that those of its calls do not say.
  bool StepText() {
    const auto [before, marker] = text_.TakeUntil(in_text_);
    out_.Content(before);
    if (marker == markers_.call_begin) BeginCall();
    return !marker.empty();
  }

  bool StepHeader() {
    std::string_view marker;
    const PendingText::Next next = ReadName(in_header_, &header_, &raw_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kOther) return GiveUp();
    if (IsOutside(marker)) return LeaveCall(marker);
    raw_ += marker;
    if (marker == markers_.call_end) return GiveUp();
    fenced_ = marker == kFence;
    state_ = State::kOpening;
    return true;
  }

  // Kimi and V3.1 write name, separator, arguments. V3 and R1 write "function", separator, name, fence, arguments.
  bool StepOpening() {
    raw_ += text_.TakeSpace();
    if (text_.rest().starts_with('{')) return Announce() || GiveUp();
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(in_arguments_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kMarker) {
      if (IsOutside(marker)) return LeaveCall(marker);
      raw_ += marker;
      if (!Announce()) return GiveUp();
      out_.Arguments("{}");
      return EndCall();
    }
    if (kimi_ || fenced_ || header_ != "function") return GiveUp();
    header_.clear();
    state_ = State::kHeader;
    return true;
  }

  bool IsOutside(std::string_view marker) const { return in_text_.At(marker).size == marker.size(); }

  bool LeaveCall(std::string_view marker) {
    GiveUp();
    return marker == markers_.call_begin ? BeginCall() : true;
  }

  // False without a name. Kimi's header is the call's id, "functions.NAME:INDEX".
  bool Announce() {
    std::string_view name = header_;
    std::string id;
    if (kimi_) {
      const size_t colon = name.find_last_not_of("0123456789");
      if (colon != std::string_view::npos && name[colon] == ':') {
        id = UniqueId(name.substr(0, colon + 1), name.substr(colon + 1));
        name = name.substr(0, colon);
      }
      if (name.starts_with("functions.")) name.remove_prefix(10);
    }
    if (name.empty()) return false;
    out_.BeginCall(name, id);
    raw_.clear();
    state_ = State::kArguments;
    return true;
  }

  // The id as it was written. Models repeat an index, at times, and clients tell calls apart by their ids.
  std::string UniqueId(std::string_view prefix, std::string_view index) {
    std::string id = text::Concat(prefix, index);
    while (!ids_.insert(id).second) id = text::Concat(prefix, next_index_++);
    return id;
  }

  bool StepArguments() {
    const auto [before, marker] = text_.TakeUntil(in_arguments_);
    out_.Arguments(before);
    if (marker.empty()) return false;
    EndCall();
    return marker == markers_.call_begin ? BeginCall() : true;
  }

  bool EndCall() {
    out_.EndCall();
    state_ = State::kText;
    return true;
  }

  const bool kimi_;
  const Markers& markers_;
  const MarkerSet in_text_;
  const MarkerSet in_header_;
  const MarkerSet in_arguments_;  // V3 and R1 close their fence before the end of the call
  State state_ = State::kText;
  std::string raw_;     // of the call, until it is announced
  std::string header_;  // since the last marker
  bool fenced_ = false;
  std::set<std::string> ids_;  // of Kimi's calls
  uint32_t next_index_ = 0;
};

}  // namespace

std::unique_ptr<CallParser> NewSectionedCalls(CallSyntax syntax, OutputWriter& out) {
  return std::make_unique<SectionedCalls>(MarkersOf(syntax), syntax == CallSyntax::kKimi, out);
}

std::vector<std::string> SectionMarkers(CallSyntax syntax) {
  const Markers& markers = MarkersOf(syntax);
  return {markers.section_begin, markers.call_begin,  markers.separator, markers.call_end,
          markers.section_end,   markers.other_begin, markers.other_end};
}

}  // namespace moestro::router
