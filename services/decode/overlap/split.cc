#include "services/decode/overlap/split.h"

#include <algorithm>
#include <limits>

namespace moestro::decode {
namespace {

// Cached tokens that take as long to attend to as a row takes otherwise. At the published geometry of DeepSeek-V3 a row
// reads 350 MB of experts in a layer, and a cached token is 1 KB at three times the bandwidth, or 0.3 MFLOP.
constexpr double kTokensPerRow = 200000;

double LengthOf(const model::CheckedBatch& batch, const model::SequenceRun& run) {
  double length = 0;
  for (int64_t row = run.begin; row < run.end; ++row) length += 1 + batch.rows[row].position / kTokensPerRow;
  return length;
}

}  // namespace

size_t SplitRuns(const model::CheckedBatch& batch) {
  double rest = 0;
  for (const model::SequenceRun& run : batch.runs) rest += LengthOf(batch, run);
  double first = 0;
  double shortest = std::numeric_limits<double>::infinity();
  size_t best = 1;
  for (size_t runs = 1; runs < batch.runs.size(); ++runs) {
    const double length = LengthOf(batch, batch.runs[runs - 1]);
    first += length;
    rest -= length;
    if (std::max(first, rest) >= shortest) continue;
    shortest = std::max(first, rest);
    best = runs;
  }
  return best;
}

}  // namespace moestro::decode
