// How a step is cut into two micro-batches.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/batch.h"

namespace moestro::decode {

// How many of the runs (the rows of a sequence each; 2 or more of them) the first lane takes, so that the longer of the
// two parts is as short as possible. Neither part is empty.
size_t SplitRuns(const model::CheckedBatch& batch);

}  // namespace moestro::decode
