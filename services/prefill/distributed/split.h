// Which rank has which part of a prompt: context parallelism, striped in zig-zag. "Cloud-grade SLOs for local MoE",
// sections 2.2.3 and 3.2.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/math.h"
#include "common/base/proportional_parts.h"

namespace moestro::prefill {

// The prompt's new tokens are cut into 2 * ranks stripes of KV blocks (kPageTokens positions; the first and the last
// block may be incomplete). Rank r has the stripes r and 2 * ranks - 1 - r, in proportion to its share: one whose
// queries see little, one whose queries see much. So its rows and what they see are in proportion, too, but for whole
// blocks, and a page of the KV cache is written by one rank only.
class ZigZagSplit {
 public:
  static constexpr int kStripes = 2;  // of each rank

  // Positions [begin, end), not empty; what lies before is cached. ranks: a part for each.
  ZigZagSplit(int64_t begin, int64_t end, const ProportionalParts& ranks);

  int ranks() const { return static_cast<int>(parts_.parts()); }
  const ProportionalParts& parts() const { return parts_; }  // of the ranks
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t tokens() const { return end_ - begin_; }

  // Positions of a rank, ascending; stripes may be empty.
  std::array<IndexRange, kStripes> Stripes(int rank) const;
  int64_t Rows(int rank) const;
  // In the order of ranks, where the rank's rows begin and, for rank == ranks(), end. A rank's rows are those of its
  // stripes, one behind the other.
  int64_t FirstRow(int rank) const;
  // Pairs of a query of the rank and a position that it sees: what its attention costs.
  int64_t VisiblePairs(int rank) const;
  // The greatest VisiblePairs for a rank's share, over the mean: 1 is perfect balance.
  double Imbalance() const;

 private:
  const int64_t begin_;
  const int64_t end_;
  const ProportionalParts parts_;
  const ProportionalParts stripes_;
};

// KV blocks that hold the positions.
IndexRange BlocksOf(IndexRange positions);

}  // namespace moestro::prefill
