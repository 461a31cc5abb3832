// The text documents of a checkpoint, from the metadata of a GGUF file.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/gguf/gguf_metadata.h"

namespace moestro::checkpoint {

// Writes tokenizer.json (or tiktoken's ranks), tokenizer_config.json and generation_config.json, each unless it is
// there: a document that lies beside the file wins over what the file says. `rows`: of the embedding. INVALID_ARGUMENT
// for malformed metadata, UNIMPLEMENTED for a tokenizer that is not known; both name the key. Where a tokenizer beside
// the file is the remedy, the message says so.
absl::Status AddGgufTexts(const GgufMetadata& metadata, int64_t rows, CheckpointDocuments* documents);

}  // namespace moestro::checkpoint
