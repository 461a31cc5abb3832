// How a model marks reasoning and tool calls in its answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/router/output/markers.h"

namespace moestro::router {

// The README of this folder shows a call in each syntax.
enum class CallSyntax { kNone, kDeepSeek, kKimi, kHermes, kQwenCoder, kGlm, kMiniMax, kMistral, kLlama, kHarmony };

struct OutputFormat {  // immutable; one for each model
  CallSyntax calls = CallSyntax::kNone;
  bool thinks = false;        // <think>reasoning</think>
  bool fenced_calls = false;  // of kDeepSeek: arguments stand between ```json and ```
  MarkerSet control;          // special tokens that mark nothing a client sees: dropped
};

// The markers that a model's templates write decide. `templates`: all of them, one after the other. `family`:
// model_type of config.json, for formats without markers. `special_tokens`: of the tokenizer.
OutputFormat FindOutputFormat(std::string_view family, std::string_view templates,
                              const std::vector<std::string>& special_tokens);

}  // namespace moestro::router
