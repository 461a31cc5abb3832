// The sizes to be measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/weights/model_spec.h"

namespace moestro::bench {

// The shape of a linear layer's weights: outputs x inputs.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  std::string ToString() const { return std::to_string(rows) + "x" + std::to_string(cols); }
};

struct TokenTarget {
  int64_t tokens = 0;
  double target = 0;  // of the row's reference; 0: none
};

// One MoE layer: `experts` routed experts of three matrices hidden x width each, and one shared expert.
struct MoeSizes {
  int64_t hidden = 0;
  int64_t width = 0;
  int64_t experts = 0;  // upper limit; fewer if they would take more than half of the available memory
  int64_t experts_per_token = 0;
  std::vector<TokenTarget> decode;
  std::vector<TokenTarget> prefill;
};

// A model for the whole engine. The available memory decides the number of experts.
struct ModelSizes {
  weights::ModelSpec spec;   // num_experts: upper limit
  int64_t memory_bytes = 0;  // of weights, approximately
  int64_t prefill_tokens = 0;
  int64_t decode_context = 0;  // tokens before the decoded one
};

// One layer in a batch's decode, all combinations.
struct BatchSizes {
  std::vector<int64_t> micro_batches;  // sequences
  std::vector<int64_t> contexts;       // tokens of each
  Shape expert;                        // of its matrices
};

struct Preset {
  std::string name;
  int64_t pool_bytes = 0;  // walked over, so that weights come from DRAM
  std::vector<Shape> gemv;
  Shape cache;                               // fits half of a core's L2 cache
  Shape table;                               // for the paper's Table 1
  std::chrono::milliseconds library_settle;  // how long idle threads of a BLAS library may spin after a call
  Shape gemm;
  std::vector<TokenTarget> gemm_tokens;
  int64_t attention_tokens = 0;  // of context
  BatchSizes batch;
  MoeSizes moe;
  ModelSizes model;
};

// DeepSeek-V3's shapes. l2_bytes, l3_bytes: 0 if unknown.
Preset LayerPreset(int64_t l2_bytes, int64_t l3_bytes);
// Shapes of the same kinds that take milliseconds, for tests. Their ratios are meaningless.
Preset QuickPreset();

}  // namespace moestro::bench
