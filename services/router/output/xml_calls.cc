// GLM, MiniMax and Qwen3-Coder: calls in tags, with each argument's bare text in a tag of its own.
#include <string>
#include <utility>
#include <vector>

#include "services/router/output/argument_types.h"
#include "services/router/output/call_parser.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

struct Tags {
  const char* block_open;
  const char* call_open = "";  // GLM's block is one call
  const char* name_end = "";   // GLM's name ends at the next tag
  const char* key_open;
  const char* key_end;
  const char* value_open = "";
  const char* value_end;
  const char* call_close;
  const char* block_close = "";
  bool framed = false;  // a line break after the value's tag, and one before its end, belong to the tags
};
constexpr Tags kGlm = {.block_open = "<tool_call>",
                       .key_open = "<arg_key>",
                       .key_end = "</arg_key>",
                       .value_open = "<arg_value>",
                       .value_end = "</arg_value>",
                       .call_close = "</tool_call>"};
constexpr Tags kMiniMax = {.block_open = "<minimax:tool_call>",
                           .call_open = "<invoke name=\"",
                           .name_end = "\">",
                           .key_open = "<parameter name=\"",
                           .key_end = "\">",
                           .value_end = "</parameter>",
                           .call_close = "</invoke>",
                           .block_close = "</minimax:tool_call>",
                           .framed = true};
constexpr Tags kQwenCoder = {.block_open = "<tool_call>",
                             .call_open = "<function=",
                             .name_end = ">",
                             .key_open = "<parameter=",
                             .key_end = ">",
                             .value_end = "</parameter>",
                             .call_close = "</function>",
                             .block_close = "</tool_call>",
                             .framed = true};

const Tags& TagsOf(CallSyntax syntax) {
  return syntax == CallSyntax::kGlm ? kGlm : syntax == CallSyntax::kMiniMax ? kMiniMax : kQwenCoder;
}

// What begins a call of an offered function whose opening tag is missing. GLM writes a bare name, and what is behind it
// tells.
MarkerSet Entrances(const Tags& tags, const ParserOptions& options) {
  std::vector<std::string> markers = {tags.block_open};
  for (const std::string& name : options.lost_tags ? OfferedNames(options.tools) : std::vector<std::string>()) {
    if (!IsCallName(name)) continue;
    if (*tags.call_open != 0) {
      markers.push_back(tags.call_open + name + tags.name_end);
      continue;
    }
    for (const char* next : {tags.key_open, tags.call_close}) {
      for (const char* line : {"", "\n"}) markers.push_back(name + line + next);
    }
  }
  return MarkerSet(std::move(markers));
}

class XmlCalls final : public CallParser {
 public:
  XmlCalls(const Tags& tags, const ParserOptions& options, OutputWriter& out)
      : CallParser(out),
        tags_(tags),
        types_(options.tools),
        in_text_(Entrances(tags, options)),
        in_block_({tags.call_open, tags.block_close}),
        in_name_(*tags.name_end != 0 ? MarkerSet({tags.name_end}) : MarkerSet({tags.key_open, tags.call_close})),
        in_call_({tags.key_open, tags.call_close, tags.block_close}),
        in_key_({tags.key_end}),
        before_value_({tags.value_open}),
        in_value_({tags.value_end}) {}

 private:
  enum class State { kText, kBlock, kName, kCall, kKey, kBeforeValue, kValue };

  bool Step() override {
    switch (state_) {
      case State::kText:
        return StepText();
      case State::kBlock:
        return StepBlock();
      case State::kName:
        return StepName();
      case State::kCall:
        return StepCall();
      case State::kKey:
        return StepKey();
      case State::kBeforeValue:
        return StepBeforeValue();
      case State::kValue:
        return StepValue();
    }
    return false;
  }

  void Abandon() override { GiveUp(); }

  bool GiveUp() {
    if (!raw_.empty()) last_ = raw_.back();
    out_.Content(std::exchange(raw_, {}));
    return Enter(State::kText);
  }

  bool Enter(State state) {
    state_ = state;
    return true;
  }

  std::string_view Keep(std::string_view text) {
    raw_ += text;
    return text;
  }

  // White space, then a tag; kOther gives up.
  PendingText::Next TakeTag(const MarkerSet& tags, std::string_view* tag) {
    Keep(text_.TakeSpace());
    const PendingText::Next next = text_.TakeMarker(tags, tag);
    if (next == PendingText::Next::kMarker) Keep(*tag);
    if (next == PendingText::Next::kOther) GiveUp();
    return next;
  }

  // Text up to a tag. False: the tag has to come.
  bool TakeText(const MarkerSet& tags, std::string* text, std::string_view* tag) {
    const auto [before, marker] = text_.TakeUntil(tags);
    text->append(Keep(before));
    *tag = Keep(marker);
    return !marker.empty();
  }

  bool StepText() {
    const auto [before, marker] = text_.TakeUntil(in_text_);
    out_.Content(before);
    if (!before.empty()) last_ = before.back();
    if (marker.empty()) return false;
    raw_ = marker;
    if (marker != tags_.block_open) return BeginLostCall(marker);
    block_is_empty_ = true;
    return *tags_.call_open != 0 ? Enter(State::kBlock) : BeginCall();
  }

  bool StepBlock() {
    std::string_view tag;
    const PendingText::Next next = TakeTag(in_block_, &tag);
    if (next != PendingText::Next::kMarker) return next == PendingText::Next::kOther;
    if (tag == tags_.call_open) return BeginCall();
    if (block_is_empty_) return GiveUp();
    raw_.clear();
    return Enter(State::kText);
  }

  // At one of the Entrances behind the first.
  bool BeginLostCall(std::string_view marker) {
    const std::string_view named = marker.substr(std::string_view(tags_.call_open).size());
    const size_t name_end = named.find_first_of("\n<>\"");
    BeginCall();
    name_ = named.substr(0, name_end);
    if (*tags_.call_open != 0) return Enter(State::kCall);
    // A bare name may be the end of a longer one.
    if (kSpace.find(last_) == std::string_view::npos) return GiveUp();
    return AfterTag(Trimmed(named.substr(name_end)));
  }

  bool BeginCall() {
    name_.clear();
    arguments_.clear();
    return Enter(State::kName);
  }

  bool StepName() {
    std::string_view tag;
    const PendingText::Next next = ReadName(in_name_, &name_, &raw_, &tag);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kMarker) Keep(tag);
    if (next == PendingText::Next::kOther || name_.empty()) return GiveUp();
    return tag == tags_.name_end ? Enter(State::kCall) : AfterTag(tag);
  }

  bool StepCall() {
    std::string_view tag;
    const PendingText::Next next = TakeTag(in_call_, &tag);
    return next == PendingText::Next::kMarker ? AfterTag(tag) : next == PendingText::Next::kOther;
  }

  bool AfterTag(std::string_view tag) {
    if (tag == tags_.call_close) return EndCall();
    if (tag == tags_.block_close) return EndCall() && Enter(State::kText);  // the call's own end is missing
    key_.clear();
    return Enter(State::kKey);
  }

  bool StepKey() {
    std::string_view tag;
    if (!TakeText(in_key_, &key_, &tag)) return false;
    value_.clear();
    return Enter(*tags_.value_open != 0 ? State::kBeforeValue : State::kValue);
  }

  bool StepBeforeValue() {
    std::string_view tag;
    const PendingText::Next next = TakeTag(before_value_, &tag);
    return next == PendingText::Next::kMarker ? Enter(State::kValue) : next == PendingText::Next::kOther;
  }

  bool StepValue() {
    std::string_view tag;
    if (!TakeText(in_value_, &value_, &tag)) return false;
    std::string_view value = value_;
    if (tags_.framed && value.starts_with('\n')) value.remove_prefix(1);
    if (tags_.framed && value.ends_with('\n')) value.remove_suffix(1);
    arguments_ += arguments_.empty() ? "{" : ", ";
    arguments_ += QuotedJson(key_) + ": " + types_.ToJson(name_, key_, value);
    return Enter(State::kCall);
  }

  bool EndCall() {
    out_.BeginCall(name_);
    out_.Arguments(arguments_.empty() ? "{}" : arguments_ + "}");
    out_.EndCall();
    raw_.clear();
    last_ = '\n';
    block_is_empty_ = false;
    return Enter(*tags_.call_open != 0 ? State::kBlock : State::kText);
  }

  const Tags& tags_;
  const ArgumentTypes types_;
  const MarkerSet in_text_;
  const MarkerSet in_block_;
  const MarkerSet in_name_;
  const MarkerSet in_call_;
  const MarkerSet in_key_;
  const MarkerSet before_value_;
  const MarkerSet in_value_;
  State state_ = State::kText;
  bool block_is_empty_ = true;
  char last_ = '\n';  // of the text before a call
  std::string raw_;   // since the block's begin or its last call
  std::string name_;
  std::string key_;
  std::string value_;
  std::string arguments_;  // JSON text without the last brace; empty: none yet
};

}  // namespace

std::unique_ptr<CallParser> NewXmlCalls(CallSyntax syntax, const ParserOptions& options, OutputWriter& out) {
  return std::make_unique<XmlCalls>(TagsOf(syntax), options, out);
}

std::vector<std::string> XmlCallMarkers(CallSyntax syntax) {
  const Tags& tags = TagsOf(syntax);
  return {tags.block_open, tags.call_open, tags.name_end,   tags.key_open,   tags.key_end,
          tags.value_open, tags.value_end, tags.call_close, tags.block_close};
}

}  // namespace moestro::router
