#include "common/roofline/traffic.h"

#include <numeric>
#include <vector>

#include "common/model/moe/gating.h"

namespace moestro::roofline {
namespace {

constexpr int64_t kBf16 = 2;
constexpr int64_t kF32 = 4;
constexpr int64_t kExpertId = 4;
constexpr int64_t kCount = 8;  // the number of rows for another rank, sent before the rows

int64_t Sum(std::span<const int64_t> numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

}  // namespace

IndexRange RankExperts(const weights::ModelSpec& spec, const ProportionalParts& ranks, int rank) {
  return ranks.Part(spec.num_experts, rank);
}
int RankOfExpert(const weights::ModelSpec& spec, const ProportionalParts& ranks, int64_t expert) {
  return static_cast<int>(ranks.PartOf(expert, spec.num_experts));
}

LinkTraffic RingTraffic(int64_t kv_dim, std::span<const int64_t> rows, int rank) {
  const int64_t ranks = std::ssize(rows);
  if (ranks == 1) return {};
  // Every rank's keys and values pass through, except those the next rank already had (sent), or this rank's own
  // (received).
  return {(Sum(rows) - rows[(rank + 1) % ranks]) * kv_dim * kBf16, (Sum(rows) - rows[rank]) * kv_dim * kBf16};
}

ExpertTraffic SmallEpTraffic(const weights::ModelSpec& spec, std::span<const int64_t> rows, int rank) {
  const int64_t others = Sum(rows) - rows[rank];
  const int64_t copies = (std::ssize(rows) - 1) * rows[rank];
  const int64_t row =
      kBf16 * spec.hidden_size + static_cast<int64_t>(sizeof(model::ExpertChoice)) * spec.experts_per_token;
  const int64_t sums = kF32 * spec.hidden_size;
  return {{copies * row, others * row}, {others * sums, copies * sums}};
}

ExpertTraffic StandardEpTraffic(const weights::ModelSpec& spec, std::span<const int64_t> pairs, int ranks, int rank) {
  int64_t out = 0;
  int64_t in = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    out += pairs[rank * ranks + peer];
    in += pairs[peer * ranks + rank];
  }
  const int64_t row = kBf16 * spec.hidden_size + kExpertId;
  const int64_t counts = (ranks - 1) * kCount;
  const int64_t result = kF32 * spec.hidden_size;
  return {{out * row + counts, in * row + counts}, {in * result, out * result}};
}

std::vector<int64_t> EvenPairs(const weights::ModelSpec& spec, const ProportionalParts& ranks,
                               std::span<const int64_t> rows) {
  std::vector<int64_t> pairs;
  for (const int64_t own : rows) {
    for (int peer = 0; peer < ranks.parts(); ++peer) {
      pairs.push_back(own * spec.experts_per_token * RankExperts(spec, ranks, peer).size() / spec.num_experts);
    }
  }
  return pairs;
}

int BreakEvenRanks(const weights::ModelSpec& spec) {
  const auto total = [](const ExpertTraffic& t) {
    return t.dispatch.sent + t.dispatch.received + t.combine.sent + t.combine.received;
  };
  // Many rows on each rank, so that rounding and counts are negligible.
  const int64_t rows = 1024 * spec.num_experts;
  int best = 1;
  for (int ranks = 2; ranks <= spec.num_experts; ++ranks) {
    const std::vector<int64_t> each(static_cast<size_t>(ranks), rows);
    const ExpertTraffic standard =
        StandardEpTraffic(spec, EvenPairs(spec, ProportionalParts::Even(ranks), each), ranks, 0);
    if (total(SmallEpTraffic(spec, each, 0)) > total(standard)) break;
    best = ranks;
  }
  return best;
}

}  // namespace moestro::roofline
