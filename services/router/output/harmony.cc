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
        in_message_(HarmonyMarkers()) {}

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

  // A call without arguments ends with a token that ends the answer, too.
  void Abandon() override {
    if (state_ == State::kHeader) LeaveHeader();
    if (state_ == State::kOpening) CallWithoutArguments();
  }

  bool Enter(State state) {
    state_ = state;
    return true;
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

  // A header may end without its mark of a message. It is control text, but for what the model said in its place: words
  // behind the role or channel.
  void LeaveHeader() {
    std::string_view rest = raw_;
    rest.remove_prefix(std::min(rest.find_last_of('>') + 1, rest.size()));
    rest = Trimmed(rest);
    rest.remove_prefix(std::min(rest.find_first_of(kSpace), rest.size()));
    if (Word(kRecipient).empty()) out_.Content(Trimmed(rest));
    raw_.clear();
  }

  bool StepHeader() {
    const auto [before, marker] = text_.TakeUntil(in_header_);
    raw_ += before;
    if (marker.empty()) return false;
    if (marker == kChannel || marker == kConstrain || marker == kMessage) {
      raw_ += marker;
      return marker == kMessage ? BeginMessage() : true;
    }
    LeaveHeader();
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

  // Tools of the model's own, such as its browser, have recipients outside "functions".
  bool BeginMessage() {
    std::string_view recipient = Word(kRecipient);
    is_function_ = recipient.starts_with(kFunctions);
    if (is_function_) recipient.remove_prefix(sizeof(kFunctions) - 1);
    name_ = recipient;
    is_thought_ = Word(kChannel) == "analysis";
    raw_.clear();
    return parse_tools_ && !name_.empty() ? Enter(State::kOpening) : BeginText();
  }

  bool BeginText() { return Enter(is_thought_ ? State::kReasoning : State::kContent); }

  // What is no object is no call: code for the model's own interpreter, or words.
  bool StepOpening() {
    raw_ += text_.TakeSpace();
    if (text_.rest().empty()) return false;
    if (text_.rest()[0] == '{') {
      out_.BeginCall(name_);
      raw_.clear();
      return Enter(State::kArguments);
    }
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(in_message_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kMarker) {
      CallWithoutArguments();
      return AfterEnd(marker);
    }
    is_thought_ ? out_.Reasoning(raw_) : out_.Content(raw_);
    raw_.clear();
    return BeginText();
  }

  void CallWithoutArguments() {
    raw_.clear();
    if (!is_function_) return;
    out_.BeginCall(name_);
    out_.Arguments("{}");
    out_.EndCall();
  }

  bool StepMessage() {
    const auto [before, marker] = text_.TakeUntil(in_message_);
    if (state_ == State::kContent) out_.Content(before);
    if (state_ == State::kReasoning) out_.Reasoning(before);
    if (state_ == State::kArguments) out_.Arguments(before);
    if (marker.empty()) return false;
    if (marker == kConstrain || marker == kMessage) {  // a header's, out of place
      if (state_ == State::kArguments) out_.Arguments(marker);
      return true;
    }
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
  std::string raw_;   // of the header, until its message begins to come out
  std::string name_;  // of the function that the message calls; empty: it is no call
  bool is_function_ = false;
  bool is_thought_ = false;
};

}  // namespace

std::unique_ptr<CallParser> NewHarmonyParser(bool parse_tools, OutputWriter& out) {
  return std::make_unique<HarmonyParser>(parse_tools, out);
}

std::vector<std::string> HarmonyMarkers() { return {kStart, kChannel, kConstrain, kMessage, kEnd, kCall, kReturn}; }

}  // namespace moestro::router
