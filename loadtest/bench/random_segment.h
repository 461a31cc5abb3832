// A weight segment in the process's own memory, filled with pseudo-random weights that keep activations in range: a
// model for timing, whose answers are meaningless.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "loadtest/bench/memory.h"

namespace moestro::bench {

struct RandomSegment {
  HugeBuffer memory;  // holds the segment's bytes
  std::unique_ptr<const weights::WeightSegment> segment;
};

// As the weight store would lay out a checkpoint with FP8 linear layers: same tensors, layouts and alignment. Errors of
// HugeBuffer::Allocate; INVALID_ARGUMENT for a spec that cannot be stored.
absl::StatusOr<RandomSegment> MakeRandomSegment(WorkerPool& pool, const weights::ModelSpec& spec);

// `spec` with as many experts as fit `bytes`: a multiple of its expert groups, at most spec.num_experts.
// RESOURCE_EXHAUSTED if fewer than its experts_per_token requires fit.
absl::StatusOr<weights::ModelSpec> FitExperts(const weights::ModelSpec& spec, int64_t bytes);

}  // namespace moestro::bench
