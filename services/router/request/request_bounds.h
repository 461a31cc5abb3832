// How much a client may send of anything that can grow. These limits stand nowhere else. They are checked on the wire,
// before a message is parsed (rpc/bounded_request.h), and again when a job is made of it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

enum class Quantity {
  kTextBytes,  // of a text, or of all texts of a chat together: context tokens times bytes of the longest token
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

// Whether a status says that a prompt, or what may follow it, exceeds the model's context. Clients then shorten it.
bool IsOverContext(const absl::Status& status);
absl::Status MarkOverContext(absl::Status status);

// For a text whose size only tokenizing has shown to exceed the context.
absl::Status TooManyTokens(const ServedModel& model, const std::string& field);

}  // namespace moestro::router
