// The tensors of a checkpoint: names, types and shapes as published, and the recipe for their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "services/cli/model/make_model/config_files.h"

namespace moestro::cli {

enum class Recipe {
  kFp8Codes,     // F8_E4M3: random codes
  kBlockScales,  // F32 [ceil(rows / 128), ceil(cols / 128)]: deviation * [0.5, 1.5) / kCodeStdDev
  kDequantised,  // BF16: the product of kFp8Codes and kBlockScales of the same weight, rounded
  kNormal,       // BF16 or F32: mean + deviation * (about normal, bounded by 3.47)
};

struct PlannedTensor {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;  // row-major, up to three dimensions
  Recipe recipe = Recipe::kNormal;
  // The name that seeds the values: `name`, except for the copies of embedding and head in the prediction layer.
  std::string key;
  double mean = 0;
  double deviation = 0;

  int64_t elements() const;
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }
};

// In checkpoint order: embedding, layers ascending, final norm, head, prediction layer. A weight's scales follow it.
std::vector<PlannedTensor> PlanTensors(const MadeModel& model);

}  // namespace moestro::cli
