// Splits generated text into what a chat client sees: content, reasoning and tool calls.
//
// The text must have its special tokens spelled out, because most markers of calls are special tokens. A marker that
// the model writes as ordinary text cannot be told from one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/inference/types.h"
#include "services/router/output/output_format.h"

namespace moestro::router {

// A piece of one call. The first piece of a call has `id` and `name`, later ones have neither.
struct ToolCallDelta {
  uint32_t index = 0;  // of the call in the answer, from 0
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // a piece of JSON text
};

// What is new. Indices ascend; each occurs once.
struct OutputDelta {
  std::string content = {};
  std::string reasoning = {};
  std::vector<ToolCallDelta> tool_calls = {};

  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// The parser of one answer; used by one thread. Its work is linear in the text, and it keeps no more than the call that
// it reads. Joined, the deltas do not depend on how the text was cut into pieces.
//
// - Text that may still become a marker waits. So does white space that a marker may follow, because it belongs to the
//   marker then. Everything else is in the delta of its own Push.
// - <think> counts at the start of the answer only, </think> only after it.
// - In tags a call may lack tags, because models leave them out. An offered function's name tells that the opening tag
//   is missing; what follows a value, that a closing one is.
// - The closing tag of a value ends it only if white space and another tag follow.
// - A thought that never ends may hold calls, and keeps back what may be one.
// - Arguments come piece by piece where the model writes them as JSON. Otherwise a call comes when it is complete.
// - A call without a name, or whose arguments are no JSON object, comes out as content, with its markers.
// - A call that has begun to come out keeps what the model writes as its arguments, even if they are not valid JSON:
//   clients must check them. They are incomplete if the answer ends inside them.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  virtual OutputDelta Push(std::string_view text) = 0;
  // The rest; call once, at the end. kLength: the answer was cut, so a call that is not whole is none.
  virtual OutputDelta Finish(FinishReason reason) = 0;
  virtual bool saw_tool_calls() const = 0;
};

struct ParserOptions {
  bool reasoning_open = false;  // the prompt ends inside <think>: text::PromptOpensReasoning()
  bool parse_tools = false;     // false: calls are content, as after tool_choice "none"
  // JSON text of the array of tools, as in text::Chat. Formats that do not write arguments as JSON take their types
  // from it. Anything malformed in it counts as absent.
  std::string_view tools = {};
  uint64_t id_seed = 0;       // of the ids of calls; different for each answer
  bool several_calls = true;  // false: calls after the first are dropped
  // Calls of these tools count without some of their tags, and in a thought that never ends. False where a grammar
  // binds the calls: only those with their tags are bound.
  bool lost_tags = true;
};

// `format` must outlive the parser.
std::unique_ptr<OutputParser> NewParser(const OutputFormat& format, const ParserOptions& options);

}  // namespace moestro::router
