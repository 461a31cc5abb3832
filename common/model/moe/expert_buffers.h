// The buffers of a layer's MLPs, besides the rows. R = max_rows, K = experts_per_token.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/buffer.h"
#include "common/model/context.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/countdown.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Width of the widest MLP that all rows pass through: a dense one or the shared expert.
int64_t DenseWidth(const weights::ModelSpec& spec);

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
    Countdown gated;     // its groups of silu(gate x) * up x
  };

  const int64_t max_rows;
  ExpertPlan plan;                 // of the choices
  std::vector<ExpertRows> pieces;  // parts of experts for one run of the pool
  Buffer<uint16_t> gathered;       // [R * K, hidden_size]: input rows by expert
  Buffer<uint16_t> routed_gated;   // [R * K, RowStride(moe_intermediate_size)]
  Buffer<uint16_t> dense_gated;    // [R, RowStride(width)] of the dense MLP or the shared expert
  std::vector<Scratch> workers;
  std::vector<Progress> progress;  // by index among the experts with rows
  Countdown dense_progress;        // groups of the dense MLP or the shared expert

 private:
  explicit ExpertBuffers(int64_t rows) : max_rows(rows) {}
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, int threads, int64_t dense_width, Take&& take);
};

struct MoeContext : EngineContext {
  ExpertBuffers& buffers;  // sized for the pool's threads
};

}  // namespace moestro::model
