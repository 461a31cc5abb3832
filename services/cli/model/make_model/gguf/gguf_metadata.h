// The metadata of a GGUF file, with the keys and types that llama.cpp's converters write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/cli/model/make_model/config_files.h"

namespace moestro::cli {

struct GgufMetadataBytes {
  int64_t keys = 0;
  std::string bytes;  // keys, types and values, as they are in the file
};

// general.architecture; empty: the family's files have no metadata for a model like this.
std::string_view GgufArchitecture(const MadeModel& model);

// Model, tokenizer and chat template. REQUIRES: GgufArchitecture(model) is not empty.
GgufMetadataBytes GgufMetadataOf(const MadeModel& model, const std::string& name);

}  // namespace moestro::cli
