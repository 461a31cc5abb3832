#include "services/router/output/thought_calls.h"

#include <algorithm>
#include <utility>

#include "services/router/output/argument_types.h"

namespace moestro::router {

ThoughtCalls::ThoughtCalls(const OutputFormat& format, const ParserOptions& options)
    : offered_(OfferedNames(options.tools)),
      found_(/*marked=*/true, OutputWriter::Ids::kLong, options.id_seed),
      parser_(NewCallParser(format.calls, options, found_)) {}

// Byte by byte, so that the parser says where a call begins.
void ThoughtCalls::Push(std::string_view thought, OutputWriter& out) {
  for (size_t i = 0; i < thought.size(); ++i) {
    held_ += thought[i];
    parser_->Push(thought.substr(i, 1));
    Collect(found_.Take(), out);
  }
}

void ThoughtCalls::EndThought(OutputWriter& out) {
  out.Reasoning(std::exchange(held_, {}));
  calls_.clear();
}

void ThoughtCalls::EndAnswer(FinishReason reason, OutputWriter& out) {
  parser_->Finish(reason);
  Collect(found_.Finish(), out);
  const auto is_offered = [&](const Call& call) { return std::ranges::count(offered_, call.name) > 0; };
  const bool all_count = !calls_.empty() && std::ranges::all_of(calls_, is_offered);
  if (!all_count) out.Reasoning(held_);
  for (const Call& call : calls_) {
    if (!is_offered(call)) continue;
    out.EndReasoning();
    out.BeginCall(call.name);
    out.Arguments(call.arguments);
    out.EndCall();
  }
}

void ThoughtCalls::Collect(OutputDelta delta, OutputWriter& out) {
  for (ToolCallDelta& call : delta.tool_calls) {
    if (!call.name.empty()) calls_.push_back({.name = std::move(call.name), .arguments = {}});
    calls_.back().arguments += call.arguments;
  }
  if (delta.content.empty()) return;
  const size_t read = held_.size() - parser_->pending();
  out.Reasoning(std::string_view(held_).substr(0, read));
  held_.erase(0, read);
}

bool MarksAreWords(CallSyntax syntax) {
  switch (syntax) {
    case CallSyntax::kHermes:
    case CallSyntax::kMistral:
    case CallSyntax::kQwenCoder:
    case CallSyntax::kGlm:
    case CallSyntax::kMiniMax:
      return true;
    default:
      return false;
  }
}

}  // namespace moestro::router
