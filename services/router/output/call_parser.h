// One syntax of tool calls: what the answer's text, without its reasoning, is made of.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/inference/types.h"
#include "services/router/output/markers.h"
#include "services/router/output/output_format.h"
#include "services/router/output/output_writer.h"

namespace moestro::router {

// Reads a growing text step by step. A subclass is a state machine: Step() uses a part of the pending text.
class CallParser {
 public:
  explicit CallParser(OutputWriter& out) : out_(out) {}
  virtual ~CallParser() = default;

  void Push(std::string_view text) {
    text_.Append(text);
    while (Step()) {
    }
  }
  // How many of the last bytes may belong to a marker, while no call is open.
  size_t pending() const { return text_.rest().size(); }
  void Finish(FinishReason reason) {
    text_.End();
    is_cut_ = reason == FinishReason::kLength;
    while (Step()) {
    }
    Abandon();
  }

 protected:
  // False: more text has to come. After its end: all is used, or Abandon() does the rest.
  virtual bool Step() = 0;
  virtual void Abandon() = 0;  // the text has ended; what was held of a call becomes content

  // Reads a name, white space around it, and one of `ends`. kOther: what comes next cannot belong to it, so a marker
  // stood in prose; nothing of that is taken. All but the marker is appended to `raw`, which is not empty.
  PendingText::Next ReadName(const MarkerSet& ends, std::string* name, std::string* raw, std::string_view* marker);

  PendingText text_;
  bool is_cut_ = false;  // the text has ended where it was cut
  OutputWriter& out_;
};

// Whether all syntaxes can write the name of a function so that its parser reads it.
bool IsCallName(std::string_view text);

// Null for kNone.
std::unique_ptr<CallParser> NewCallParser(CallSyntax syntax, const ParserOptions& options, OutputWriter& out);
// All markers of a syntax: they must reach its parser, although some are special tokens.
std::vector<std::string> CallMarkers(CallSyntax syntax);

// What these two are made of.
std::unique_ptr<CallParser> NewSectionedCalls(CallSyntax syntax, OutputWriter& out);
std::unique_ptr<CallParser> NewJsonCalls(CallSyntax syntax, const ParserOptions& options, OutputWriter& out);
std::unique_ptr<CallParser> NewXmlCalls(CallSyntax syntax, const ParserOptions& options, OutputWriter& out);
// gpt-oss writes all of its answer in messages. Without `parse_tools` calls are content.
std::unique_ptr<CallParser> NewHarmonyParser(bool parse_tools, OutputWriter& out);
std::vector<std::string> SectionMarkers(CallSyntax syntax);
std::vector<std::string> JsonCallMarkers(CallSyntax syntax);
std::vector<std::string> XmlCallMarkers(CallSyntax syntax);
std::vector<std::string> HarmonyMarkers();

}  // namespace moestro::router
