// The JSON header of a safetensors file: the layout of the data that follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/block_format.h"

namespace moestro::checkpoint {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // in the format's spelling ("BF16", "I64")
  std::optional<DType> dtype;  // absent: legal in a file, but no type of the segment
  int64_t element_bits = 0;    // 0: a format of blocks
  std::vector<int64_t> shape;  // row-major; empty for a scalar
  int64_t file_offset = 0;     // bytes from the start of the file; any alignment
  int64_t bytes = 0;           // product of the shape times the element size

  int64_t element_bytes() const { return element_bits / 8; }  // 0 for types below a byte
  // Of `count` neighbouring elements of a row; of a format of blocks, whole ones.
  int64_t BytesOf(int64_t count) const {
    return dtype && IsBlockFormat(*dtype) ? RowBytes(*dtype, count) : count * element_bytes();
  }
};

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
