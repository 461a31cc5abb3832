// From what a client asks to a job: checked, tokenized, with defaults filled in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/router/api_types.h"
#include "services/router/served_model.h"
#include "services/router/types.h"

namespace moestro {

struct PrepareLimits {
  uint32_t default_max_tokens = 1024;  // for requests that set none
};

// `seed` is for a request that has none, so that every attempt at it draws the same tokens. INVALID_ARGUMENT names the
// field.
absl::StatusOr<GenerateJob> PrepareGenerate(const GenerateInput& input, const ServedModel& model,
                                            const PrepareLimits& limits, std::string request_id, uint64_t seed);

absl::StatusOr<ScoreJob> PrepareScore(const ScoreInput& input, const ServedModel& model, std::string request_id);

// ModelText::Encode and EncodeChat for what a client sends. INVALID_ARGUMENT, before any work is spent on it, for more
// bytes or messages than can fit the model's context. `field` begins the message.
absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, bool plain, const ServedModel& model,
                                                const char* field);
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatMessages& messages, const ServedModel& model);

// ModelText::Decode for what a client sends. INVALID_ARGUMENT for more ids than the model's context has tokens, or one
// that the model does not have.
absl::StatusOr<std::string> DecodeIds(std::span<const int32_t> ids, bool keep_special_tokens, const ServedModel& model);

}  // namespace moestro
