// Bytes that ranks exchange, as formulas. The communicator's counters must equal them; `moestro plan` prints them.
//
// S ranks, N tokens in total, n = N / S on each rank, A experts per token, hidden size D. Per layer, over a rank's
// link, in each direction:
//   ring pass-KV    (N - n) * 2 * kv_dim                                MLA: the latent vectors, 576 elements
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
#include "common/base/proportional_parts.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// One rank's link, one layer.
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

// rows[r]: the rows of rank r.
LinkTraffic RingTraffic(int64_t kv_dim, std::span<const int64_t> rows, int rank);
ExpertTraffic SmallEpTraffic(const weights::ModelSpec& spec, std::span<const int64_t> rows, int rank);
// pairs[r * ranks + q]: (token, expert) pairs with the token on rank r and the expert on rank q.
ExpertTraffic StandardEpTraffic(const weights::ModelSpec& spec, std::span<const int64_t> pairs, int ranks, int rank);

// Such pairs for equally likely experts. ranks: a part for each.
std::vector<int64_t> EvenPairs(const weights::ModelSpec& spec, const ProportionalParts& ranks,
                               std::span<const int64_t> rows);

// The experts of a rank.
IndexRange RankExperts(const weights::ModelSpec& spec, const ProportionalParts& ranks, int rank);
// The rank that holds an expert.
int RankOfExpert(const weights::ModelSpec& spec, const ProportionalParts& ranks, int64_t expert);

// The largest number of ranks at which SmallEP moves no more bytes than standard EP: both directions, both phases.
int BreakEvenRanks(const weights::ModelSpec& spec);

}  // namespace moestro::roofline
