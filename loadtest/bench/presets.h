// The sizes that are measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/weights/model_spec.h"

namespace moestro::bench {

// Of a linear layer's weights: outputs x inputs.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  std::string ToString() const { return std::to_string(rows) + "x" + std::to_string(cols); }
};

struct TokenTarget {
  int64_t tokens = 0;
  double target = 0;  // of the dot-product rate
};

// One MoE layer: `experts` routed experts of three matrices hidden x width each, and one more that every token takes.
struct MoeSizes {
  int64_t hidden = 0;
  int64_t width = 0;
  int64_t experts = 0;  // at most; fewer if they would take more than half of the available memory
  int64_t experts_per_token = 0;
  std::vector<TokenTarget> decode;  // target of read bandwidth; 0: none
  std::vector<int64_t> prefill;     // tokens
};

// A model for the whole engine. What its spec leaves open: experts, by memory.
struct ModelSizes {
  ModelSpec spec;            // num_experts: at most
  int64_t memory_bytes = 0;  // of weights, about
  int64_t prefill_tokens = 0;
  int64_t decode_context = 0;  // tokens before the one that is decoded
};

struct Preset {
  std::string name;
  int64_t pool_bytes = 0;  // walked over so that weights come from DRAM
  std::vector<Shape> gemv;
  Shape cache;                               // fits half of a core's L2 cache
  Shape table;                               // of the paper's Table 1
  std::chrono::milliseconds library_settle;  // how long idle threads of a BLAS library may spin after a call
  Shape gemm;
  std::vector<TokenTarget> gemm_tokens;
  int64_t attention_tokens = 0;  // of context
  MoeSizes moe;
  ModelSizes model;
};

// DeepSeek-V3's shapes. l2_bytes, l3_bytes: 0 if unknown.
Preset LayerPreset(int64_t l2_bytes, int64_t l3_bytes);
// Shapes of the same kinds that take milliseconds: what the tests run. Its ratios mean nothing.
Preset QuickPreset();

}  // namespace moestro::bench
