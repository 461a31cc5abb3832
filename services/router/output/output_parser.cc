#include "services/router/output/output_parser.h"

#include <string>
#include <utility>

#include "services/router/output/call_parser.h"
#include "services/router/output/output_writer.h"
#include "services/router/output/thought_calls.h"

namespace moestro::router {
namespace {

constexpr char kThink[] = "<think>";
constexpr char kEndThink[] = "</think>";

bool MayHoldCalls(const OutputFormat& format, const ParserOptions& options) {
  return format.calls == CallSyntax::kHarmony || (format.calls != CallSyntax::kNone && options.parse_tools);
}

// Models open a section of calls without closing <think>, at times. Its markers are special tokens, so no thought has
// them; those of other syntaxes are words that a thought may mention.
MarkerSet ReasoningEnds(const OutputFormat& format, const ParserOptions& options) {
  std::vector<std::string> markers = {kEndThink};
  if (options.parse_tools && (format.calls == CallSyntax::kDeepSeek || format.calls == CallSyntax::kKimi)) {
    for (std::string& marker : CallMarkers(format.calls)) markers.push_back(std::move(marker));
  }
  return MarkerSet(std::move(markers));
}

// Mistral's template refuses ids of any other length.
OutputWriter::Ids IdsOf(CallSyntax syntax) {
  return syntax == CallSyntax::kMistral ? OutputWriter::Ids::kNineCharacters : OutputWriter::Ids::kLong;
}

// Three stages: control tokens are dropped, reasoning is split off, calls are taken from the rest.
class StagedParser final : public OutputParser {
 public:
  StagedParser(const OutputFormat& format, const ParserOptions& options)
      : control_(format.control),
        reasoning_ends_(ReasoningEnds(format, options)),
        out_(MayHoldCalls(format, options), IdsOf(format.calls), options.id_seed,
             options.several_calls ? UINT32_MAX : 1),
        stage_(options.reasoning_open ? Stage::kOpened
               : format.thinks        ? Stage::kStart
                                      : Stage::kAnswer) {
    if (MayHoldCalls(format, options)) calls_ = NewCallParser(format.calls, options, out_);
    const bool may_lose_end = format.thinks || options.reasoning_open;
    if (may_lose_end && options.parse_tools && options.lost_tags && MarksAreWords(format.calls)) {
      thought_calls_ = std::make_unique<ThoughtCalls>(format, options);
    }
  }

  OutputDelta Push(std::string_view text) override {
    text_.Append(text);
    DropControl();
    return out_.Take();
  }

  OutputDelta Finish(FinishReason reason) override {
    text_.End();
    DropControl();
    thought_.End();
    SplitReasoning();
    if (stage_ == Stage::kReasoning && thought_calls_) thought_calls_->EndAnswer(reason, out_);
    if (calls_) calls_->Finish(reason);
    return out_.Finish();
  }

  bool saw_tool_calls() const override { return out_.saw_calls(); }

 private:
  // kStart: <think> may come. kOpened: the prompt has it, and the model may repeat it.
  enum class Stage { kStart, kOpened, kReasoning, kAnswer };

  void DropControl() {
    PendingText::Cut cut;
    do {
      cut = text_.TakeUntil(control_);
      if (stage_ == Stage::kAnswer) {
        Answer(cut.before);
      } else {
        thought_.Append(cut.before);
        SplitReasoning();
      }
    } while (!cut.marker.empty());
  }

  void SplitReasoning() {
    if (stage_ == Stage::kStart || stage_ == Stage::kOpened) BeginReasoning();
    if (stage_ == Stage::kReasoning) {
      const auto [before, marker] = thought_.TakeUntil(reasoning_ends_);
      Think(before);
      if (marker.empty()) return;
      if (thought_calls_) thought_calls_->EndThought(out_);
      out_.EndReasoning();
      stage_ = Stage::kAnswer;
      if (marker != kEndThink) Answer(marker);
    }
    if (stage_ == Stage::kAnswer) Answer(thought_.Take(thought_.rest().size()));
  }

  void BeginReasoning() {
    space_ += thought_.TakeSpace();
    std::string_view marker;
    const PendingText::Next next = thought_.TakeMarker(think_, &marker);
    if (next == PendingText::Next::kUnknown) return;
    const bool reasons = next == PendingText::Next::kMarker || stage_ == Stage::kOpened;
    stage_ = reasons ? Stage::kReasoning : Stage::kAnswer;
    if (!reasons) Answer(space_);
  }

  void Think(std::string_view text) {
    if (thought_calls_) {
      thought_calls_->Push(text, out_);
    } else {
      out_.Reasoning(text);
    }
  }

  void Answer(std::string_view text) {
    if (calls_) {
      calls_->Push(text);
    } else {
      out_.Content(text);
    }
  }

  const MarkerSet& control_;
  const MarkerSet think_{{kThink}};
  const MarkerSet reasoning_ends_;
  OutputWriter out_;
  std::unique_ptr<CallParser> calls_;            // null: the answer is content
  std::unique_ptr<ThoughtCalls> thought_calls_;  // null: a thought has none
  Stage stage_;
  PendingText text_;     // before control tokens are dropped
  PendingText thought_;  // before the answer
  std::string space_;    // at the start
};

}  // namespace

std::unique_ptr<OutputParser> NewParser(const OutputFormat& format, const ParserOptions& options) {
  return std::make_unique<StagedParser>(format, options);
}

}  // namespace moestro::router
