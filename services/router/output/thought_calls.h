// Calls in a thought that never ends: models leave </think> out before a call, at times.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/inference/types.h"
#include "services/router/output/call_parser.h"
#include "services/router/output/output_format.h"
#include "services/router/output/output_writer.h"

namespace moestro::router {

// Reads the text of a thought, and gives it to the writer but for what a call may be. The marks of these calls are
// words that a thought may mention. So calls count only when the answer ends without an end of its thought.
class ThoughtCalls {
 public:
  // `format` must outlive this.
  ThoughtCalls(const OutputFormat& format, const ParserOptions& options);

  void Push(std::string_view thought, OutputWriter& out);
  void EndThought(OutputWriter& out);                      // what looked like a call was a mention
  void EndAnswer(FinishReason reason, OutputWriter& out);  // calls of offered functions count

 private:
  struct Call {
    std::string name;
    std::string arguments;
  };

  // Takes what the parser has found.
  void Collect(OutputDelta delta, OutputWriter& out);

  const std::vector<std::string> offered_;
  OutputWriter found_;
  const std::unique_ptr<CallParser> parser_;
  std::string held_;  // of the thought, since the last text that is in no call
  std::vector<Call> calls_;
};

// Whether thoughts may mention the syntax's marks as words. Other marks are special tokens, which end a thought.
bool MarksAreWords(CallSyntax syntax);

}  // namespace moestro::router
