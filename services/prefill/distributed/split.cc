#include "services/prefill/distributed/split.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/kv/format.h"

namespace moestro::prefill {

IndexRange BlocksOf(IndexRange positions) {
  if (positions.size() <= 0) return {};
  return {positions.begin / kv::kPageTokens, CeilDiv(positions.end, kv::kPageTokens)};
}

ZigZagSplit::ZigZagSplit(int64_t begin, int64_t end, int ranks) : begin_(begin), end_(end), ranks_(ranks) {
  MOE_CHECK(begin >= 0 && begin < end && ranks >= 1);
}

std::array<IndexRange, ZigZagSplit::kStripes> ZigZagSplit::Stripes(int rank) const {
  const IndexRange blocks = BlocksOf({begin_, end_});
  const auto stripe = [&](int index) {
    const IndexRange part = EvenPart(blocks.size(), index, kStripes * ranks_);
    if (part.size() == 0) return IndexRange{};
    return IndexRange{std::max(begin_, (blocks.begin + part.begin) * kv::kPageTokens),
                      std::min(end_, (blocks.begin + part.end) * kv::kPageTokens)};
  };
  return {stripe(rank), stripe(kStripes * ranks_ - 1 - rank)};
}

int64_t ZigZagSplit::Rows(int rank) const {
  int64_t rows = 0;
  for (const IndexRange& stripe : Stripes(rank)) rows += stripe.size();
  return rows;
}

int64_t ZigZagSplit::FirstRow(int rank) const {
  int64_t row = 0;
  for (int r = 0; r < rank; ++r) row += Rows(r);
  return row;
}

int64_t ZigZagSplit::VisiblePairs(int rank) const {
  int64_t pairs = 0;
  for (const IndexRange& stripe : Stripes(rank)) pairs += stripe.size() * (stripe.begin + 1 + stripe.end) / 2;
  return pairs;
}

double ZigZagSplit::Imbalance() const {
  int64_t most = 0;
  int64_t sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    most = std::max(most, VisiblePairs(rank));
    sum += VisiblePairs(rank);
  }
  return static_cast<double>(most) * ranks_ / static_cast<double>(sum);
}

}  // namespace moestro::prefill
