#include "services/prefill/distributed/split.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "common/kv/format.h"

namespace moestro::prefill {
namespace {

// Of the stripes: the shares of the ranks, to and fro.
ProportionalParts ToAndFro(const ProportionalParts& ranks) {
  std::vector<int64_t> shares;
  for (int64_t rank = 0; rank < ranks.parts(); ++rank) shares.push_back(ranks.share(rank));
  for (int64_t rank = ranks.parts() - 1; rank >= 0; --rank) shares.push_back(ranks.share(rank));
  return ProportionalParts(shares);
}

}  // namespace

IndexRange BlocksOf(IndexRange positions) {
  if (positions.size() <= 0) return {};
  return {positions.begin / kv::kPageTokens, CeilDiv(positions.end, kv::kPageTokens)};
}

ZigZagSplit::ZigZagSplit(int64_t begin, int64_t end, const ProportionalParts& ranks)
    : begin_(begin), end_(end), parts_(ranks), stripes_(ToAndFro(ranks)) {
  MOE_CHECK(begin >= 0 && begin < end);
}

std::array<IndexRange, ZigZagSplit::kStripes> ZigZagSplit::Stripes(int rank) const {
  const IndexRange blocks = BlocksOf({begin_, end_});
  const auto stripe = [&](int index) {
    const IndexRange part = stripes_.Part(blocks.size(), index);
    if (part.size() == 0) return IndexRange{};
    return IndexRange{std::max(begin_, (blocks.begin + part.begin) * kv::kPageTokens),
                      std::min(end_, (blocks.begin + part.end) * kv::kPageTokens)};
  };
  return {stripe(rank), stripe(kStripes * ranks() - 1 - rank)};
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
  double most = 0;  // for a share of 1
  int64_t sum = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    most = std::max(most, static_cast<double>(VisiblePairs(rank)) / static_cast<double>(parts_.share(rank)));
    sum += VisiblePairs(rank);
  }
  return most * static_cast<double>(parts_.total()) / static_cast<double>(sum);
}

}  // namespace moestro::prefill
