// Whether the texts of a checkpoint can be served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

// Builds the tokenizer and the chat template, as the router will: what it cannot use is refused before the weights are
// loaded. Returns the highest id of a token, plus one; control tokens from spec.vocab_size on do not count. NOT_FOUND
// if there is no tokenizer, INVALID_ARGUMENT or UNIMPLEMENTED with file and field for one that cannot be used. A model
// without a usable chat template still completes prompts: its template's fault is appended to `warnings`.
absl::StatusOr<int32_t> CheckTexts(const CheckpointDocuments& documents, const GenerationDefaults& defaults,
                                   const weights::ModelSpec& spec, std::vector<std::string>* warnings);

}  // namespace moestro::checkpoint
