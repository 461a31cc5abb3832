// Bytes that ranks exchange, by formula: what the communicator counts must equal them, and what `moestro plan` prints.
//
// S ranks, N tokens on all of them, n = N / S on each, A experts per token, hidden size D. Over a rank's link, in each
// direction, for a layer:
//   ring pass-KV    (N - n) * 2 * kv_dim                                MLA: the latent vectors, 576 numbers
//   standard EP     n * A * (S - 1) / S * (2 D + 4)  out to experts,    one row for each expert of another rank
//                   n * A * (S - 1) / S * 4 D        back
//   SmallEP         (N - n) * (2 D + 8 A)            all rows to all,   with the experts that they were routed to
//                   (N - n) * 4 D                    sums to the rows' ranks
// BF16 activations, F32 sums. SmallEP moves S / A of standard EP's rows: it pays while S <= A.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/math.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Over one rank's link, for one layer.
struct LinkTraffic {
  int64_t sent = 0;
  int64_t received = 0;
  friend bool operator==(const LinkTraffic&, const LinkTraffic&) = default;
};
struct ExpertTraffic {
  LinkTraffic dispatch;
  LinkTraffic combine;
};

enum class ExpertParallelism { kSmall, kStandard };

// rows[r]: of rank r.
LinkTraffic RingTraffic(int64_t kv_dim, std::span<const int64_t> rows, int rank);
ExpertTraffic SmallEpTraffic(const ModelSpec& spec, std::span<const int64_t> rows, int rank);
// pairs[r * ranks + q]: tokens of rank r times their experts on rank q.
ExpertTraffic StandardEpTraffic(const ModelSpec& spec, std::span<const int64_t> pairs, int ranks, int rank);

// Pairs as above if every expert is as likely as any other; experts are spread evenly over the ranks.
std::vector<int64_t> EvenPairs(const ModelSpec& spec, std::span<const int64_t> rows);

// Experts of a rank.
IndexRange RankExperts(const ModelSpec& spec, int rank, int ranks);
// Who has an expert.
int RankOfExpert(const ModelSpec& spec, int64_t expert, int ranks);

// The most ranks at which SmallEP moves no more bytes than standard EP, both directions and both phases together.
int BreakEvenRanks(const ModelSpec& spec);

}  // namespace moestro
