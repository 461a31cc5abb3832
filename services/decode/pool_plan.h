// How large the KV pool may grow, and how much of it has memory from the start.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/kv/format.h"
#include "services/decode/config.h"

namespace moestro::decode {

struct PoolPlan {
  int64_t pages = 0;        // at most
  int64_t first_pages = 0;  // that have memory from the start; 0: all of them
};

// Bytes that the pool may still take without harm to this machine's other programs: room in /dev/shm, and available
// memory but for a reserve of 5 % of the machine's, 2 GiB at least, or half of what is available where that is less.
absl::StatusOr<int64_t> SparePoolBytes();

// With --kv-tokens that many tokens, which have memory from the start. Otherwise sixteen contexts, with --mode
// throughput one for each sequence of a batch if these are more, as far as `spare_bytes` go: conversations stay cached
// for their next turn. With a device, which has a place for every page, two contexts, at most 64K tokens and a quarter
// of `spare_bytes`, all from the start. `geometry` has all but the count of pages; a page at least.
PoolPlan PlanPool(const DecodeConfig& config, int64_t max_context_tokens, const kv::KvGeometry& geometry,
                  int64_t spare_bytes);

}  // namespace moestro::decode
