// Hermes (Qwen), Mistral and Llama: calls as JSON objects, in different wrappings.
#include <optional>
#include <string>
#include <utility>

#include "services/router/output/call_parser.h"
#include "services/router/output/json_call.h"

namespace moestro::router {
namespace {

struct Wrapping {
  const char* open;        // before a call, or before the array of calls
  const char* close = "";  // after a call
  const char* separator = "";
  bool array = false;
  bool bare = false;  // a call may also begin the answer, without `open`
};
constexpr Wrapping kHermes = {.open = "<tool_call>", .close = "</tool_call>"};
constexpr Wrapping kMistral = {.open = "[TOOL_CALLS]", .close = "]", .separator = ",", .array = true};
constexpr Wrapping kLlama = {.open = "<|python_tag|>", .separator = ";", .bare = true};

const Wrapping& WrappingOf(CallSyntax syntax) {
  return syntax == CallSyntax::kHermes ? kHermes : syntax == CallSyntax::kMistral ? kMistral : kLlama;
}

class JsonCalls final : public CallParser {
 public:
  JsonCalls(const Wrapping& wrapping, OutputWriter& out)
      : CallParser(out),
        wrapping_(wrapping),
        open_({wrapping.open}),
        array_({"["}),
        next_({wrapping.close, wrapping.separator}),
        state_(wrapping.bare ? State::kStart : State::kText) {}

 private:
  enum class State { kStart, kText, kArray, kCall, kNext };

  bool Step() override {
    switch (state_) {
      case State::kStart:
        return StepStart();
      case State::kText:
        return StepText();
      case State::kArray:
        return StepArray();
      case State::kCall:
        return StepCall();
      case State::kNext:
        return StepNext();
    }
    return false;
  }

  void Abandon() override {
    if (state_ == State::kCall || state_ == State::kArray) GiveUp();
  }

  bool GiveUp() {
    out_.Content(std::exchange(raw_, {}));
    if (reader_ && !reader_->announced()) out_.Content(reader_->raw());
    reader_.reset();
    state_ = State::kText;
    return true;
  }

  bool BeginCall() {
    reader_.emplace(/*needs_arguments=*/wrapping_.bare);
    state_ = State::kCall;
    return true;
  }

  bool StepStart() {
    out_.Content(text_.TakeSpace());
    if (text_.rest().empty()) return false;
    if (text_.rest()[0] == '{') return BeginCall();
    state_ = State::kText;
    return true;
  }

  bool StepText() {
    const auto [before, marker] = text_.TakeUntil(open_);
    out_.Content(before);
    if (marker.empty()) return false;
    raw_ = marker;
    if (!wrapping_.array) return BeginCall();
    state_ = State::kArray;
    return true;
  }

  bool StepArray() {
    raw_ += text_.TakeSpace();
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(array_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    raw_ += marker;
    return next == PendingText::Next::kMarker ? BeginCall() : GiveUp();
  }

  bool StepCall() {
    switch (reader_->Read(text_, out_)) {
      case JsonCallReader::Result::kMore:
        if (reader_->announced()) raw_.clear();
        return false;
      case JsonCallReader::Result::kBroken:
        if (!reader_->announced()) return GiveUp();
        break;
      case JsonCallReader::Result::kCall:
        break;
    }
    raw_.clear();
    reader_.reset();
    state_ = State::kNext;
    return true;
  }

  bool StepNext() {
    out_.Content(text_.TakeSpace());
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(next_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    raw_ = marker;
    if (marker == wrapping_.separator && !marker.empty()) return BeginCall();
    raw_.clear();
    state_ = State::kText;
    return true;
  }

  const Wrapping& wrapping_;
  const MarkerSet open_;
  const MarkerSet array_;
  const MarkerSet next_;
  State state_;
  std::string raw_;  // before the call that is read
  std::optional<JsonCallReader> reader_;
};

}  // namespace

std::unique_ptr<CallParser> NewJsonCalls(CallSyntax syntax, OutputWriter& out) {
  return std::make_unique<JsonCalls>(WrappingOf(syntax), out);
}

std::vector<std::string> JsonCallMarkers(CallSyntax syntax) {
  const Wrapping& wrapping = WrappingOf(syntax);
  return {wrapping.open, wrapping.close};
}

}  // namespace moestro::router
