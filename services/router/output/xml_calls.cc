// GLM, MiniMax and Qwen3-Coder: calls in tags, with each argument's bare text in a tag of its own.
#include <map>
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
  bool framed = false;  // a line break behind the key's tag, and one before the value's end, belong to the tags
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
        lost_tags_(options.lost_tags),
        types_(options.tools),
        in_text_(Entrances(tags, options)),
        in_block_({tags.call_open, tags.block_open, tags.block_close}),
        in_name_(*tags.name_end != 0 ? MarkerSet({tags.name_end}) : MarkerSet({tags.key_open, tags.call_close})),
        in_call_({tags.key_open, tags.call_close, tags.block_close}),
        in_key_({tags.key_end}),
        before_value_({tags.value_open, tags.key_open, tags.call_close}),
        after_value_({tags.key_open, tags.call_close, tags.block_close, tags.call_open, tags.block_open}),
        after_call_({tags.call_open, tags.block_open, tags.block_close}) {}

 private:
  // kValueEnd, kCallEnd: behind a tag in a value, which ends the value or is a part of it.
  enum class State { kText, kBlock, kName, kCall, kKey, kBeforeValue, kValue, kValueEnd, kCallEnd };

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
      case State::kValueEnd:
        return StepValueEnd();
      case State::kCallEnd:
        return StepCallEnd();
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

  // White space, then a tag; without one, `tag` is empty.
  PendingText::Next TakeTag(const MarkerSet& tags, std::string_view* tag) {
    Keep(text_.TakeSpace());
    const PendingText::Next next = text_.TakeMarker(tags, tag);
    Keep(*tag);
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
    return marker == tags_.block_open ? BeginBlock() : BeginLostCall(marker);
  }

  bool BeginBlock() {
    block_is_empty_ = true;
    return Enter(State::kBlock);
  }

  bool StepBlock() {
    std::string_view tag;
    const PendingText::Next next = TakeTag(in_block_, &tag);
    if (next == PendingText::Next::kUnknown) return false;
    if (next == PendingText::Next::kOther) return *tags_.call_open != 0 ? GiveUp() : BeginCall();
    if (tag == tags_.call_open) return BeginCall();
    if (tag == tags_.block_open) return BeginBlock();  // models write it twice, at times
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
    arguments_ = {};
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
    if (next == PendingText::Next::kUnknown) return false;
    return next == PendingText::Next::kMarker ? AfterTag(tag) : GiveUp();
  }

  // Of those behind a name, a value or a call.
  bool AfterTag(std::string_view tag) {
    if (tag == tags_.key_open) {
      key_.clear();
      return Enter(State::kKey);
    }
    EndCall();
    if (tag == tags_.block_close) return Enter(State::kText);  // the call's own end is missing
    if (tag != tags_.call_open && tag != tags_.block_open) return true;
    Keep(tag);  // so is the end of its block
    return tag == tags_.call_open ? BeginCall() : BeginBlock();
  }

  bool StepKey() {
    std::string_view tag;
    return TakeText(in_key_, &key_, &tag) && BeginValue();
  }

  bool BeginValue() {
    value_.clear();
    in_value_ = &TagsInValue();
    return Enter(*tags_.value_open != 0 ? State::kBeforeValue : State::kValue);
  }

  bool StepBeforeValue() {
    std::string_view tag;
    const PendingText::Next next = TakeTag(before_value_, &tag);
    if (next == PendingText::Next::kUnknown) return false;
    const bool is_lost = next == PendingText::Next::kOther && lost_tags_;
    return is_lost || tag == tags_.value_open ? Enter(State::kValue) : GiveUp();
  }

  // What may end a value of this function: its own tag, or, where that is missing, the call's, or the next argument's.
  const MarkerSet& TagsInValue() {
    const auto [place, is_new] = tags_in_value_.try_emplace(name_);
    if (!is_new) return place->second;
    std::vector<std::string> tags = {tags_.value_end};
    if (lost_tags_) {
      tags.emplace_back(tags_.call_close);
      for (const std::string& property : types_.PropertiesOf(name_)) {
        tags.push_back(tags_.key_open + property + tags_.key_end);
      }
    }
    return place->second = MarkerSet(std::move(tags));
  }

  bool StepValue() {
    std::string_view tag;
    if (!TakeText(*in_value_, &value_, &tag)) return false;
    if (tag == tags_.value_end || tag == tags_.call_close) {
      held_ = tag;
      return Enter(tag == tags_.value_end ? State::kValueEnd : State::kCallEnd);
    }
    tag.remove_prefix(std::string_view(tags_.key_open).size());
    tag.remove_suffix(std::string_view(tags_.key_end).size());
    std::string key(tag);
    const size_t line = value_.find_last_not_of(" \t");
    const bool begins_line = line == std::string::npos || value_[line] == '\n';
    if (!begins_line || key == key_ || arguments_.Has(key)) {
      value_.append(tags_.key_open).append(key).append(tags_.key_end);
      return true;
    }
    value_.erase(line + 1);  // 0 where the value is white space
    EndValue(/*on_own_line=*/true);
    key_ = std::move(key);
    return BeginValue();
  }

  // A file that a model writes may have the tag that ends a value. Only that of the value has another tag behind it.
  bool StepValueEnd() {
    std::string_view tag;
    if (!TakeEnd(after_value_, &tag)) return false;
    if (state_ == State::kValue) return true;
    EndValue(tags_.framed);
    return AfterTag(tag);
  }

  // The same for the call's end in a value whose own end is missing.
  bool StepCallEnd() {
    std::string_view tag;
    if (!TakeEnd(after_call_, &tag)) return false;
    if (state_ == State::kValue) return true;
    EndValue(/*on_own_line=*/true);
    return AfterTag(tag);
  }

  // What is behind a tag in a value: one of `tags` or, empty, the end of the text, which may have cut the end of the
  // call or block. Otherwise the value goes on. False: more text has to come.
  bool TakeEnd(const MarkerSet& tags, std::string_view* tag) {
    held_ += Keep(text_.TakeSpace());
    const PendingText::Next next = text_.TakeMarker(tags, tag);
    if (next == PendingText::Next::kUnknown) return false;
    Keep(*tag);
    if (next == PendingText::Next::kMarker) return true;
    const auto is_cut = [this](std::string_view end) { return end.starts_with(text_.rest()); };
    if (lost_tags_ && text_.ended() && !is_cut_ && (is_cut(tags_.call_close) || is_cut(tags_.block_close))) {
      text_.Take(text_.rest().size());
      return true;
    }
    value_ += held_;
    return Enter(State::kValue);
  }

  // `on_own_line`: a line break before the tag that ended the value belongs to the tag.
  void EndValue(bool on_own_line) {
    std::string_view value = value_;
    if (tags_.framed && value.starts_with('\n')) value.remove_prefix(1);
    if (on_own_line && value.ends_with('\n')) value.remove_suffix(1);
    arguments_.Set(key_, types_.ToJson(name_, key_, value));
  }

  void EndCall() {
    out_.BeginCall(name_);
    out_.Arguments(arguments_.Text());
    out_.EndCall();
    raw_.clear();
    last_ = '\n';
    block_is_empty_ = false;
    Enter(*tags_.call_open != 0 ? State::kBlock : State::kText);
  }

  const Tags& tags_;
  const bool lost_tags_;
  const ArgumentTypes types_;
  const MarkerSet in_text_;
  const MarkerSet in_block_;
  const MarkerSet in_name_;
  const MarkerSet in_call_;
  const MarkerSet in_key_;
  const MarkerSet before_value_;
  const MarkerSet after_value_;
  const MarkerSet after_call_;
  std::map<std::string, MarkerSet> tags_in_value_;  // by function
  State state_ = State::kText;
  bool block_is_empty_ = true;
  char last_ = '\n';  // of the text before a call
  std::string raw_;   // since the block's begin or its last call
  std::string name_;
  std::string key_;
  std::string value_;
  std::string held_;                     // of the value, if it does not end here
  const MarkerSet* in_value_ = nullptr;  // of tags_in_value_
  ObjectText arguments_;
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
