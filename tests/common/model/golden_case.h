// Logits and greedy continuations of another implementation; tests/golden/README.md describes the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::model {

struct GoldenPosition {
  std::vector<int32_t> ids;       // tokens with given logits
  std::vector<double> logits;     // of `ids`
  double norm = 0;                // Euclidean, of the logits of all valid tokens
  double router_margin = 0;       // distance of the biased scores from another choice of experts, over all layers
  double measured_deviation = 0;  // largest over all logits when the other implementation rounds activations to BF16
};

struct GoldenCase {
  std::string checkpoint_crc32;  // of the shards, decimal
  int64_t token_count = 0;
  std::vector<int32_t> prompt;
  std::vector<GoldenPosition> positions;  // of the prompt
  std::vector<int32_t> greedy;            // continuation
};

// All cases in the manifest of `directory`, with F32 activations and exact weights. NOT_FOUND and INVALID_ARGUMENT name
// the file.
absl::StatusOr<std::vector<GoldenCase>> ReadGoldenCases(const std::string& directory);

}  // namespace moestro::model
