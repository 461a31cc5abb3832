// config.json of a model in GGUF: what metadata and tensors say of it, in the words of its family.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_file.h"

namespace moestro::checkpoint {

// The text of a config.json that ParseModelSpec reads (config.h). Numbers are what the writer of the file had: floats
// become the shortest decimal that means them.
// What metadata leave to the program is filled in: rules of an architecture, as llama.cpp has them, and for files of
// known models that are older than a key, the published value (groups of experts of DeepSeek-V2 and V3, the bounds of
// Kimi-K2's YaRN). Factors of the rotation (rope_freqs.weight) must be those of Llama 3's rule.
// UNIMPLEMENTED: other architectures, and settings that this engine lacks. INVALID_ARGUMENT: missing, contradictory or
// malformed. Messages name file and key or tensor.
absl::StatusOr<std::string> GgufConfig(const GgufModel& model);

}  // namespace moestro::checkpoint
