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

// Inputs of a row that share a scale, and a zero point, of INT4.
struct Int4Groups {
  int64_t size = 0;  // a multiple of 32; 0: all inputs of a row
  bool zero_points = false;

  friend bool operator==(const Int4Groups&, const Int4Groups&) = default;
};

// How INT4 weights whose outputs are columns lie in the file.
enum class ByInput {
  kNone,
  kAwq,     // words of eight outputs
  kGptq,    // words of eight inputs; zero points are stored less 1
  kGptqV2,  // words of eight inputs
};

struct Quantization {
  bool fp8 = false;              // E4M3 with scales of 128x128 blocks
  std::vector<Int4Groups> int4;  // of compressed-tensors, AWQ and GPTQ
  ByInput by_input = ByInput::kNone;
  bool ordered = false;       // GPTQ's desc_act: inputs may be in groups in another order than the model's
  bool packed_mxfp4 = false;  // MXFP4 as compressed-tensors has it
  bool blocks = false;        // MXFP4 as gpt-oss has it
  bool int8 = false;          // W8A8: I8 codes with a scale for each row; inputs are rounded to 8 bits by token

  // What routed experts probably have; only the headers of the files say it.
  std::optional<DType> experts() const;
};

// The format of INT4 weights in rows of `cols` inputs. Absent: there is none for groups that do not fill the row, or
// that are no multiples of 32.
std::optional<DType> Int4Format(const Int4Groups& groups, int64_t cols, bool bf16_scales);

// Of config.json in one spelling; the values are those of no quantisation if there is a problem. UNIMPLEMENTED: a
// method, format or setting that changes the arithmetic and that this engine lacks. The message names the field.
Quantization ReadQuantization(text::JsonFields& config);

// The same of the whole document. Errors of ParseModelSpec.
absl::StatusOr<Quantization> ParseQuantization(std::string_view config_json);

}  // namespace moestro::checkpoint
