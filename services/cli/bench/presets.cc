#include "services/cli/bench/presets.h"

#include <algorithm>

#include "common/tensor/packed_matrix.h"

namespace moestro::bench {
namespace {

constexpr int64_t kHidden = 7168;
constexpr int64_t kExpertWidth = 2048;
constexpr int64_t kGiB = int64_t{1} << 30;

// The largest matrix of whole row groups, kHidden inputs each, that leaves half of the L2 cache for everything else.
Shape CacheShape(int64_t l2_bytes) {
  const int64_t groups = l2_bytes / 2 / (kHidden * kRowGroup);
  return {kRowGroup * std::max<int64_t>(1, groups), kHidden};
}

}  // namespace

Preset LayerPreset(int64_t l2_bytes, int64_t l3_bytes) {
  Preset preset;
  preset.name = "layer";
  // At four times the caches, what is left in them from the last walk is long gone when its turn comes again.
  preset.pool_bytes = std::max(2 * kGiB, (4 * l3_bytes + kGiB - 1) / kGiB * kGiB);
  preset.gemv = {{kExpertWidth, kHidden}, {kHidden, kExpertWidth}, {18432, kHidden}, {1536, kHidden}};
  preset.cache = CacheShape(l2_bytes);
  preset.table = {kExpertWidth, kHidden};
  preset.library_settle = std::chrono::milliseconds(20);
  preset.gemm = {kExpertWidth, kHidden};
  preset.gemm_tokens = {{64, 0.86}, {128, 0.91}, {256, 0.94}};
  return preset;
}

Preset QuickPreset() {
  Preset preset;
  preset.name = "quick";
  preset.pool_bytes = int64_t{2} << 20;
  preset.gemv = {{128, 256}, {256, 128}};
  preset.cache = {64, 256};
  preset.table = {128, 256};
  preset.library_settle = std::chrono::milliseconds(0);
  preset.gemm = {128, 256};
  preset.gemm_tokens = {{16, 0.86}};
  return preset;
}

}  // namespace moestro::bench
