// The JSON header of a safetensors file: the layout of the data that follows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/tensor_file.h"

namespace moestro::checkpoint {

// Parses `header`, which is only the JSON text. Its data occupies `data_bytes` bytes of the file, from `data_start`.
// The result is sorted by file_offset and tiles the data exactly. `label` (the path) begins every message.
// INVALID_ARGUMENT for everything that the format forbids: syntax, UTF-8, anything but whitespace around the object,
// metadata that is not text, unknown dtypes, integers that are negative, fractional or above 2^48, missing or duplicate
// keys, a shape that disagrees with the byte range, holes, overlaps and unclaimed bytes; also for more than 32
// dimensions. Unknown keys of a tensor are ignored with one line in `warnings` (may be null) for the whole file.
absl::StatusOr<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view header, int64_t data_start,
                                                               int64_t data_bytes, const std::string& label,
                                                               std::vector<std::string>* warnings);

}  // namespace moestro::checkpoint
