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

// What of the machine's memory the pool leaves to other programs: 5 %, 2 GiB at least, or half of what is available at
// the start where that is less.
int64_t PoolReserve(int64_t machine_bytes, int64_t available_bytes);
absl::StatusOr<int64_t> PoolReserve();  // of this machine, now

// Bytes that the pool may still take: fifteen sixteenths of the room in /dev/shm, which other programs use, too, and
// available memory but for the reserve. Below 0: others have taken of the reserve.
absl::StatusOr<int64_t> SparePoolBytes(int64_t reserve);

// With --kv-tokens that many tokens, which have memory from the start. Otherwise sixteen contexts, with --mode
// throughput one for each sequence of a batch if these are more, as far as `spare_bytes` go: conversations stay cached
// for their next turn. With a device, which has a place for every page, two contexts, at most 64K tokens and a quarter
// of `spare_bytes`, all from the start. `geometry` has all but the count of pages; a page at least.
PoolPlan PlanPool(const DecodeConfig& config, int64_t max_context_tokens, const kv::KvGeometry& geometry,
                  int64_t spare_bytes);

}  // namespace moestro::decode
