// From what a client asks to a job: checked, tokenized, with defaults filled in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/router/request/api_types.h"
#include "services/router/request/types.h"
#include "services/router/text/served_model.h"

namespace moestro {

struct PrepareLimits {
  uint32_t default_max_tokens = 1024;  // for requests that set none
};

// Asked now and then during work on a text; its error ends it. Empty: never.
using CancelCheck = std::function<absl::Status()>;

// `seed` is for a request that has none, so that every attempt at it draws the same tokens. INVALID_ARGUMENT names the
// field.
absl::StatusOr<GenerateJob> PrepareGenerate(const GenerateInput& input, const ServedModel& model,
                                            const PrepareLimits& limits, std::string request_id, uint64_t seed,
                                            const CancelCheck& check = nullptr);

absl::StatusOr<ScoreJob> PrepareScore(const ScoreInput& input, const ServedModel& model, std::string request_id,
                                      const CancelCheck& check = nullptr);

// ModelText::Encode and EncodeChat for what a client sends. INVALID_ARGUMENT for more tokens than the model's context
// has: without any work where the bytes or messages show it, else as soon as it is found. `field` begins the message.
absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, bool plain, const ServedModel& model,
                                                const char* field, const CancelCheck& check = nullptr);
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatMessages& messages, const ServedModel& model,
                                                const CancelCheck& check = nullptr);

// The text of ids that a client sends. INVALID_ARGUMENT for more of them than the model's context has tokens, one that
// the model does not have, or a text that no reply holds.
absl::StatusOr<std::string> DecodeIds(std::span<const int32_t> ids, bool keep_special_tokens, const ServedModel& model,
                                      const CancelCheck& check = nullptr);

}  // namespace moestro
