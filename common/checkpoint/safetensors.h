// One safetensors file: opening reads and checks its header; data is read on request.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/tensor_file.h"

namespace moestro::checkpoint {

// Errors of ReadOnlyFile::Open and ParseSafetensorsHeader; INVALID_ARGUMENT for a file too short for its header or a
// header above 100,000,000 bytes. Appends harmless oddities to `warnings`, if given.
absl::StatusOr<TensorFile> OpenSafetensors(const std::string& path, std::vector<std::string>* warnings = nullptr);

}  // namespace moestro::checkpoint
