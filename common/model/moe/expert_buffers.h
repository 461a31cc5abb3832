// The buffers of a layer's MLPs, besides the rows. R = max_rows, K = experts_per_token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/linear.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/countdown.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Width of the widest MLP that all rows pass through: a dense one or the shared expert.
int64_t DenseWidth(const weights::ModelSpec& spec);

// Bytes of a gathered row: in BF16, or coded as input of an expert's first or second projection.
inline int64_t GatheredBytes(const weights::ModelSpec& spec) {
  return MostCodedBytes(std::max(spec.hidden_size, spec.moe_intermediate_size));
}

class ExpertBuffers {
 public:
  // For passes of up to max_rows rows on the pool's threads. dense_width: DenseWidth(spec), or 0 for routed experts
  // only.
  ExpertBuffers(const weights::ModelSpec& spec, int64_t max_rows, int threads, int64_t dense_width);
  // Bytes of the buffers.
  static int64_t Bytes(const weights::ModelSpec& spec, int64_t max_rows, int threads, int64_t dense_width);

  // One worker's scratch memory.
  struct Scratch {
    Buffer<float> group_a;  // [R, kMaxTaskGroups * kRowGroup]: one task's outputs
    Buffer<float> group_b;  // the same
  };
  // The progress of an expert's tasks, for the tasks that wait for them.
  struct Progress {
    Countdown gathered;  // its input rows
    Countdown gated;     // its groups of silu(gate x) * up x, and one more if these are coded
  };

  const int64_t max_rows;
  ExpertPlan plan;                 // of the choices
  std::vector<ExpertRows> pieces;  // parts of experts for one run of the pool
  // [R * K, GatheredBytes(spec)]: by expert its input rows, BF16 or coded; then coded inputs of its down projection.
  Buffer<uint8_t> gathered;
  Buffer<uint16_t> routed_gated;  // [R * K, RowStride(moe_intermediate_size)]
  Buffer<uint16_t> dense_gated;   // [R, RowStride(width)] of the dense MLP or the shared expert
  Buffer<uint8_t> dense_coded;    // [R, MostCodedBytes(hidden_size or width)]: as `gathered`, coded rows only
  std::vector<Scratch> workers;
  std::vector<Progress> progress;  // by index among the experts with rows
  Progress dense_progress;         // of the dense MLP or the shared expert

 private:
  explicit ExpertBuffers(int64_t rows) : max_rows(rows) {}
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, int threads, int64_t dense_width, Take&& take);
};

struct MoeContext : EngineContext {
  ExpertBuffers& buffers;  // sized for the pool's threads
};

}  // namespace moestro::model
