// Choices of experts that others recorded, as text. One line for each token and layer:
//
//   sequence token layer expert[:weight] expert[:weight] ...
//
// Fields are separated by blanks, tabs or commas; lines come in any order; empty lines and lines that begin with `#`
// are skipped. `sequence` and `token` (its position) are numbers below 2^32, `layer` is one of the model's. Every token
// has every layer that any token has, and as many experts there. Without weights all experts weigh the same.
#pragma once

#include <cstdint>
#include <istream>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/routing_trace.h"

namespace moestro::cli {

// The recorded tokens, by sequence in the order of their first lines, then by position.
struct RoutingText {
  model::RoutingTraceModel model;
  std::vector<model::TracedToken> tokens;
  std::vector<model::ExpertChoice> choices;  // [tokens, moe_layers, experts_per_token], ascending ids in each row
};

// experts: of a layer; a text names those that were chosen only. INVALID_ARGUMENT names the line and what is wrong.
absl::StatusOr<RoutingText> ReadRoutingText(std::istream& text, int64_t experts);

// How the tokens were computed, which the text does not say.
struct RoutingPasses {
  int64_t prompt_tokens = 0;  // of each sequence, its first ones: a pass of their own
  int64_t together = 1;       // sequences that generate together, a token each a pass
};

// Appends the passes. Errors of RoutingTraceWriter::Append.
absl::Status WritePasses(const RoutingText& text, const RoutingPasses& passes, model::RoutingTraceWriter& writer);

}  // namespace moestro::cli
