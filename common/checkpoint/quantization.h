// What quantization_config of config.json says of the weights. Which tensors have that form, their headers say.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/dtype.h"
#include "common/text/json/json.h"

namespace moestro::checkpoint {

struct Quantization {
  bool fp8 = false;           // E4M3 with scales of 128x128 blocks
  std::vector<DType> packed;  // compressed-tensors: those formats of block_format.h that its groups have
  bool blocks = false;        // MXFP4 as gpt-oss has it
  bool int8 = false;          // W8A8: I8 codes with a scale for each row; inputs are rounded to 8 bits by token

  // What routed experts probably have; only the headers of the files say it.
  std::optional<DType> experts() const {
    if (blocks) return DType::kMXFP4;
    if (int8) return DType::kI8;
    return packed.empty() ? std::nullopt : std::optional(packed.front());
  }
};

// Of config.json in one spelling; the values are those of no quantisation if there is a problem. UNIMPLEMENTED: a
// method, format or setting that changes the arithmetic and that this engine lacks. The message names the field.
Quantization ReadQuantization(text::JsonFields& config);

// The same of the whole document. Errors of ParseModelSpec.
absl::StatusOr<Quantization> ParseQuantization(std::string_view config_json);

}  // namespace moestro::checkpoint
