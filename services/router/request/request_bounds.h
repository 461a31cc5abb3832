// How much a client may send of anything that can grow. These limits stand nowhere else. They are checked on the wire,
// before a message is parsed (rpc/bounded_request.h), and again when a job is made of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

enum class Quantity {
  kTextBytes,  // of a text, or of all texts of a chat together: MostCountedTokens times bytes of the longest token
  kTokenIds,   // the context's tokens
  kMessages,   // of a chat: a template writes at least one token for each message and call
  kToolCalls,
  kStopIds,          // decode compares all of them after every token
  kStopTexts,        // the router compares all of them with every byte of an answer
  kStopTextBytes,    // of each
  kLogitBiases,      // decode applies all of them to every token
  kCacheScopeBytes,  // as in decode's Reserve
  kRequestIdBytes,
  kConstraintBytes,
};

// INVALID_ARGUMENT, naming `field` and the bound, if `amount` exceeds it.
absl::Status CheckBound(const ServedModel& model, Quantity quantity, const std::string& field, size_t amount);

// A prompt that leaves no room for an answer. Programs shorten it by these numbers, in the words of their API.
struct OverContext {
  size_t tokens = 0;       // of the prompt
  bool is_exact = true;    // false: it has at least that many
  size_t context = 0;      // tokens that prompt and answer may have together
  bool is_of_key = false;  // the API key's limit, not the model's
};

// INVALID_ARGUMENT that tells the numbers and can be recognised.
absl::Status OverContextError(const std::string& field, const OverContext& over);
// Nullopt: the status says something else.
std::optional<OverContext> OverContextOf(const absl::Status& status);

// A prompt above the context is counted up to here, for the error. So its cost has a bound.
size_t MostCountedTokens(const ServedModel& model);

}  // namespace moestro::router
