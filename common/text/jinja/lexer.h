// Splits template source into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::text::jinja {

struct LexerToken {
  enum class Kind {
    kData,           // text outside tags
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,
    kInteger,
    kFloat,
    kString,  // `text` without quotes, escapes resolved
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  int line;  // from 1
};

// Jinja's lexical rules with trim_blocks and lstrip_blocks on, as chat templates expect. The newline after a block or
// comment and the indentation before it belong to the tag; "-" takes all white space, "+" keeps it. Newlines become \n,
// and a newline at the end of the source is dropped. The last token is kEnd. INVALID_ARGUMENT with the line.
absl::StatusOr<std::vector<LexerToken>> Tokenize(std::string_view source);

// INVALID_ARGUMENT "template line N: message".
absl::Status TemplateError(int line, std::string_view message);

}  // namespace moestro::text::jinja
