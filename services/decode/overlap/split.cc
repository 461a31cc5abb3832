#include "services/decode/overlap/split.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace moestro {
namespace {

// Cached tokens that take as long to attend to as a row takes otherwise. At the published geometry of DeepSeek-V3 a row
// reads 350 MB of experts in a layer, and a cached token is 1 KB at three times the bandwidth, or 0.3 MFLOP.
constexpr double kTokensPerRow = 200000;

}  // namespace

size_t SplitRuns(const CheckedBatch& batch) {
  std::vector<double> lengths;
  double rest = 0;
  for (const SequenceRun& run : batch.runs) {
    double length = 0;
    for (int64_t row = run.begin; row < run.end; ++row) length += 1 + batch.rows[row].position / kTokensPerRow;
    lengths.push_back(length);
    rest += length;
  }
  double first = 0;
  double shortest = std::numeric_limits<double>::infinity();
  size_t best = 1;
  for (size_t runs = 1; runs < lengths.size(); ++runs) {
    first += lengths[runs - 1];
    rest -= lengths[runs - 1];
    if (std::max(first, rest) >= shortest) continue;
    shortest = std::max(first, rest);
    best = runs;
  }
  return best;
}

}  // namespace moestro
