// Turns a client's request into a job: checked, tokenized, with defaults filled in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/access/keys_file.h"
#include "services/router/request/api_types.h"
#include "services/router/request/types.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

struct PrepareLimits {
  uint32_t default_max_tokens = 0;   // for requests that set none; 0 = what the checkpoint says
  access::TenantLimits tenant = {};  // of these, max_tokens and context
};

// For requests that set none. 0 = as many as the context has room for.
uint32_t DefaultMaxTokens(const ServedModel& model, const PrepareLimits& limits);

// Called from time to time during work on a text. An error ends the work. Empty: never called.
using CancelCheck = std::function<absl::Status()>;

// Checks the name that a client gives its request, which goes into the logs of all roles. Empty is valid.
absl::Status CheckRequestId(const std::string& id, const ServedModel& model);

// Of what a request's constraint may be, all but whether it can be followed. INVALID_ARGUMENT names its field.
absl::Status CheckConstraintText(const GenerateInput& input, const ServedModel& model);

// `seed` is for a request that has none, so that every attempt draws the same tokens. INVALID_ARGUMENT names the field.
// Does not find out whether the constraint can be followed.
absl::StatusOr<GenerateJob> PrepareGenerate(const GenerateInput& input, const ServedModel& model,
                                            const PrepareLimits& limits, std::string request_id, uint64_t seed,
                                            const CancelCheck& check = nullptr);

absl::StatusOr<ScoreJob> PrepareScore(const ScoreInput& input, const ServedModel& model, const PrepareLimits& limits,
                                      std::string request_id, const CancelCheck& check = nullptr);

// ModelText::Encode and EncodeChat for a client's input. INVALID_ARGUMENT if the text has more tokens than the model's
// context. The check fails at once where the bytes or messages prove it, otherwise as soon as tokenizing finds it.
// `field` begins the message.
absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, bool plain, const ServedModel& model,
                                                const char* field, const CancelCheck& check = nullptr);
absl::StatusOr<std::vector<int32_t>> EncodeChat(const text::Chat& chat, const ServedModel& model,
                                                const CancelCheck& check = nullptr);

// The text of a client's ids. INVALID_ARGUMENT for more ids than the model's context has tokens, for an id that the
// model does not have, or for a text too large for a reply.
absl::StatusOr<std::string> DecodeIds(std::span<const int32_t> ids, bool keep_special_tokens, const ServedModel& model,
                                      const CancelCheck& check = nullptr);

}  // namespace moestro::router
