// How much a client may send of whatever can grow: the one place for these figures. Checked on the wire, before a
// message is parsed (rpc/bounded_request.h), and again by whoever makes a job of it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "services/router/text/served_model.h"

namespace moestro {

enum class Quantity {
  kTextBytes,        // of a text, or of a chat's contents together: the context's tokens times the longest one's bytes
  kTokenIds,         // the context's tokens
  kMessages,         // of a chat: a template writes a token for each at least
  kStopIds,          // decode looks through all of them after every token
  kCacheScopeBytes,  // what decode's Reserve takes
};

// INVALID_ARGUMENT names `field` and the bound if `amount` is over it.
absl::Status CheckBound(const ServedModel& model, Quantity quantity, const std::string& field, size_t amount);

// For a text of which only tokenizing has shown that it has more tokens than the context.
absl::Status TooManyTokens(const ServedModel& model, const std::string& field);

}  // namespace moestro
