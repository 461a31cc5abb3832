// The cost model of this machine, measured.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/decode/overlap/cost_model.h"
#include "services/decode/overlap/hybrid_forward.h"

namespace moestro::decode {

// Runs the parts of layers with experts for 1, 2, 4, ... rows, the last of them `most_rows`, on the first lane of
// `forward`, each several times; keeps the shortest time, which is the one that nothing else disturbed. The rows are
// the first tokens of a sequence: attention to cached tokens is not part of it, and takes as long cut as not. Takes
// about 10 layers' time for each number of rows. REQUIRES a model with experts.
absl::StatusOr<CostModel> MeasureCosts(HybridForward& forward, int64_t most_rows);

}  // namespace moestro::decode
