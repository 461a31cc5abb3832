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

struct Preset {
  std::string name;
  int64_t pool_bytes = 0;  // walked over so that weights come from DRAM
  std::vector<Shape> gemv;
  Shape cache;                               // fits half of a core's L2 cache
  Shape table;                               // of the paper's Table 1
  std::chrono::milliseconds library_settle;  // how long idle threads of a BLAS library may spin after a call
  Shape gemm;
  std::vector<TokenTarget> gemm_tokens;
};

// DeepSeek-V3's shapes. l2_bytes, l3_bytes: 0 if unknown.
Preset LayerPreset(int64_t l2_bytes, int64_t l3_bytes);
// Shapes of the same kinds that take milliseconds: what the tests run. Its ratios mean nothing.
Preset QuickPreset();

}  // namespace moestro::bench
