// gpt-oss: the answer is a row of messages, each with a channel and, for a call, a recipient:
//   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>content<|return|>
//   ... to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>{arguments}<|call|>
#include <algorithm>
#include <string>
#include <utility>

#include "services/router/output/call_parser.h"

namespace moestro::router {
namespace {

constexpr char kStart[] = "<|start|>";
constexpr char kChannel[] = "<|channel|>";
constexpr char kConstrain[] = "<|constrain|>";
constexpr char kMessage[] = "<|message|>";
constexpr char kEnd[] = "<|end|>";
constexpr char kCall[] = "<|call|>";
constexpr char kReturn[] = "<|return|>";
constexpr char kRecipient[] = "to=";
constexpr char kFunctions[] = "functions.";

class HarmonyParser final : public CallParser {
 public:
  HarmonyParser(bool parse_tools, OutputWriter& out)
      : CallParser(out),
        parse_tools_(parse_tools),
        before_header_({kStart, kChannel, kConstrain, kMessage, kRecipient, kEnd, kCall, kReturn}),
        in_header_(HarmonyMarkers()),
        in_message_({kStart, kChannel, kEnd, kCall, kReturn}) {}

 private:
  enum class State { kBetween, kHeader, kOpening, kContent, kReasoning, kArguments };

  bool Step() override {
    switch (state_) {
      case State::kBetween:
        return StepBetween();
      case State::kHeader:
        return StepHeader();
      case State::kOpening:
        return StepOpening();
      default:
        return StepMessage();
    }
  }

  // A header without a recipient is control text only.
  void Abandon() override {
    if (state_ == State::kHeader && raw_.find(kRecipient) == std::string::npos) return;
    out_.Content(raw_);
  }

  bool Enter(State state) {
    state_ = state;
    return true;
  }

  bool GiveUp() {
    out_.Content(std::exchange(raw_, {}));
    return Enter(State::kContent);
  }

  // A text without a header is content.
  bool StepBetween() {
    space_ += text_.TakeSpace();
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(before_header_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kOther) {
      out_.Content(std::exchange(space_, {}));
      return text_.rest().empty() ? false : Enter(State::kContent);
    }
    space_.clear();
    if (marker == kEnd || marker == kCall || marker == kReturn) return true;
    raw_ = marker;
    return marker == kMessage ? BeginMessage() : Enter(State::kHeader);
  }

  // A header that another message or an end cuts off is malformed, so it is content.
  bool StepHeader() {
    const auto [before, marker] = text_.TakeUntil(in_header_);
    raw_ += before;
    if (marker.empty()) return false;
    if (marker == kChannel || marker == kConstrain || marker == kMessage) {
      raw_ += marker;
      return marker == kMessage ? BeginMessage() : true;
    }
    out_.Content(raw_);
    out_.EndContentParagraph();
    return AfterEnd(marker);
  }

  bool AfterEnd(std::string_view marker) {
    const bool begins = marker == kStart || marker == kChannel;
    raw_ = begins ? marker : "";
    return Enter(begins ? State::kHeader : State::kBetween);
  }

  // The word after a mark of the header.
  std::string_view Word(std::string_view mark) const {
    const size_t begin = raw_.find(mark);
    if (begin == std::string::npos) return {};
    const std::string_view rest = std::string_view(raw_).substr(begin + mark.size());
    return rest.substr(0, std::min(rest.find_first_of(" \t\r\n<"), rest.size()));
  }

  bool BeginMessage() {
    recipient_ = Word(kRecipient);
    if (!recipient_.empty()) return parse_tools_ ? Enter(State::kOpening) : GiveUp();
    const bool analysis = Word(kChannel) == "analysis";
    raw_.clear();
    return Enter(analysis ? State::kReasoning : State::kContent);
  }

  // Tools of the model's own, such as its browser, have recipients outside "functions".
  bool StepOpening() {
    raw_ += text_.TakeSpace();
    if (text_.rest().empty()) return false;
    if (text_.rest()[0] != '{') return GiveUp();
    std::string_view name = recipient_;
    if (name.starts_with(kFunctions)) name.remove_prefix(sizeof(kFunctions) - 1);
    if (name.empty()) return GiveUp();
    out_.BeginCall(name);
    raw_.clear();
    return Enter(State::kArguments);
  }

  bool StepMessage() {
    const auto [before, marker] = text_.TakeUntil(in_message_);
    if (state_ == State::kContent) out_.Content(before);
    if (state_ == State::kReasoning) out_.Reasoning(before);
    if (state_ == State::kArguments) out_.Arguments(before);
    if (marker.empty()) return false;
    if (state_ == State::kContent) out_.EndContentParagraph();
    if (state_ == State::kReasoning) out_.EndReasoning();
    if (state_ == State::kArguments) out_.EndCall();
    return AfterEnd(marker);
  }

  const bool parse_tools_;
  const MarkerSet before_header_;
  const MarkerSet in_header_;
  const MarkerSet in_message_;
  State state_ = State::kBetween;
  std::string space_;
  std::string raw_;  // of the header, until its message begins to come out
  std::string recipient_;
};

}  // namespace

std::unique_ptr<CallParser> NewHarmonyParser(bool parse_tools, OutputWriter& out) {
  return std::make_unique<HarmonyParser>(parse_tools, out);
}

std::vector<std::string> HarmonyMarkers() { return {kStart, kChannel, kConstrain, kMessage, kEnd, kCall, kReturn}; }

}  // namespace moestro::router
