// Hermes (Qwen), Mistral and Llama: calls as JSON objects, in different wrappings.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/router/output/argument_types.h"
#include "services/router/output/call_parser.h"
#include "services/router/output/json_call.h"
#include "services/router/output/object_text.h"

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

// What begins a call whose opening tag is missing: no prose has it and, behind it, the closing tag.
std::vector<std::string> LostStarts(const Wrapping& wrapping, const ParserOptions& options) {
  std::vector<std::string> starts;
  if (!options.lost_tags || wrapping.array || *wrapping.close == 0) return starts;
  for (const std::string& name : OfferedNames(options.tools)) {
    for (const char* key : {R"({"name": )", R"({"name":)"}) starts.push_back(key + QuotedJson(name));
  }
  return starts;
}

MarkerSet Entrances(const Wrapping& wrapping, const ParserOptions& options) {
  std::vector<std::string> markers = LostStarts(wrapping, options);
  markers.emplace_back(wrapping.open);
  return MarkerSet(std::move(markers));
}

class JsonCalls final : public CallParser {
 public:
  JsonCalls(const Wrapping& wrapping, const ParserOptions& options, OutputWriter& out)
      : CallParser(out),
        wrapping_(wrapping),
        in_text_(Entrances(wrapping, options)),
        open_({wrapping.open}),
        array_({"["}),
        close_({wrapping.close}),
        next_({wrapping.close, wrapping.separator}),
        state_(wrapping.bare ? State::kStart : State::kText) {}

 private:
  enum class State { kStart, kText, kOpened, kArray, kCall, kLost, kNext };

  bool Step() override {
    switch (state_) {
      case State::kStart:
        return StepStart();
      case State::kText:
        return StepText();
      case State::kOpened:
        return StepOpened();
      case State::kArray:
        return StepArray();
      case State::kCall:
        return StepCall();
      case State::kLost:
        return StepLost();
      case State::kNext:
        return StepNext();
    }
    return false;
  }

  void Abandon() override {
    if (state_ != State::kNext) GiveUp();
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
    const auto [before, marker] = text_.TakeUntil(in_text_);
    out_.Content(before);
    if (marker.empty()) return false;
    raw_ = marker;
    if (marker != wrapping_.open) return BeginLostCall();
    state_ = State::kOpened;
    return true;
  }

  // Models write the opening tag twice, at times.
  bool StepOpened() {
    raw_ += text_.TakeSpace();
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(open_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    raw_ += marker;
    if (next == PendingText::Next::kMarker) return true;
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

  bool BeginLostCall() {
    scanner_ = {};
    scanner_.Scan(raw_);
    state_ = State::kLost;
    return true;
  }

  // The call is held until its closing tag shows that it is one.
  bool StepLost() {
    using ScannerState = JsonValueScanner::State;
    if (scanner_.state() == ScannerState::kInside) raw_ += text_.Take(scanner_.Scan(text_.rest()));
    if (scanner_.state() == ScannerState::kInside) return false;
    if (scanner_.state() == ScannerState::kBroken) return GiveUp();
    TakeBehindCall();
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(close_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kOther) return GiveUp();
    PendingText whole;
    whole.Append(raw_);
    JsonCallReader reader(/*needs_arguments=*/false);
    const bool is_call = reader.Read(whole, out_) == JsonCallReader::Result::kCall || reader.announced();
    raw_ += marker;
    if (!is_call) return GiveUp();
    raw_.clear();
    state_ = State::kText;
    return true;
  }

  // Models write a brace too much behind the object, at times.
  void TakeBehindCall() {
    raw_ += text_.Take(std::min(text_.rest().find_first_not_of(" \t\r\n}"), text_.rest().size()));
  }

  bool StepNext() {
    TakeBehindCall();
    if (text_.rest().empty()) return false;
    std::string_view marker;
    const PendingText::Next next = text_.TakeMarker(next_, &marker);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kOther) return GiveUp();
    raw_ = marker;
    if (marker == wrapping_.separator) return BeginCall();
    raw_.clear();
    state_ = State::kText;
    return true;
  }

  const Wrapping& wrapping_;
  const MarkerSet in_text_;
  const MarkerSet open_;
  const MarkerSet array_;
  const MarkerSet close_;
  const MarkerSet next_;
  State state_;
  std::string raw_;  // before the call that is read
  std::optional<JsonCallReader> reader_;
  JsonValueScanner scanner_;  // of a call without its opening tag
};

}  // namespace

std::unique_ptr<CallParser> NewJsonCalls(CallSyntax syntax, const ParserOptions& options, OutputWriter& out) {
  return std::make_unique<JsonCalls>(WrappingOf(syntax), options, out);
}

std::vector<std::string> JsonCallMarkers(CallSyntax syntax) {
  const Wrapping& wrapping = WrappingOf(syntax);
  return {wrapping.open, wrapping.close};
}

}  // namespace moestro::router
