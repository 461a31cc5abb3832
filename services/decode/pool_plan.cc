#include "services/decode/pool_plan.h"

#include <unistd.h>

#include <algorithm>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kv/layout.h"
#include "common/platform/process_memory.h"
#include "common/platform/shared_memory.h"

namespace moestro::decode {
namespace {

constexpr int64_t kContexts = 16;
// Backing it takes some 50 ms, so that a start and a restart of the role stay short.
constexpr int64_t kFirstBytes = int64_t{64} << 20;

}  // namespace

int64_t PoolReserve(int64_t machine_bytes, int64_t available_bytes) {
  constexpr int64_t kLeast = int64_t{2} << 30;
  return std::min(std::max(kLeast, machine_bytes / 20), available_bytes / 2);
}

absl::StatusOr<int64_t> PoolReserve() {
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  return PoolReserve(int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE), available.bytes);
}

absl::StatusOr<int64_t> SparePoolBytes(int64_t reserve) {
  MOE_ASSIGN_OR_RETURN(const int64_t room, SharedMemory::FreeBytes());
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  return std::min(room - room / 16, available.bytes - reserve);
}

PoolPlan PlanPool(const DecodeConfig& config, int64_t max_context_tokens, const kv::KvGeometry& geometry,
                  int64_t spare_bytes) {
  const auto pages_of = [&](int64_t tokens) { return CeilDiv(tokens, geometry.page_tokens); };
  if (config.kv_tokens > 0) return {.pages = pages_of(config.kv_tokens)};
  kv::KvGeometry one_page = geometry;
  one_page.page_count = 1;
  const absl::StatusOr<kv::KvLayout> layout = kv::ComputeKvLayout(one_page);
  const int64_t before_pages = layout.ok() ? layout->pages_offset : 0;
  const int64_t fitting = (spare_bytes - before_pages) / geometry.page_bytes();
  const bool throughput = config.mode == Mode::kThroughput;
  if (config.device != "none") {
    constexpr int64_t kMostForLatency = 65536;
    const int64_t tokens =
        throughput ? config.limits().max_batch * max_context_tokens : std::min(2 * max_context_tokens, kMostForLatency);
    return {.pages = std::max<int64_t>(1, std::min(pages_of(tokens), fitting / 4))};
  }
  const int64_t contexts = throughput ? std::max<int64_t>(kContexts, config.limits().max_batch) : kContexts;
  const int64_t pages = std::max<int64_t>(1, std::min(pages_of(contexts * max_context_tokens), fitting));
  const int64_t first = std::min(pages_of(2 * max_context_tokens), kFirstBytes / geometry.page_bytes());
  return {.pages = pages, .first_pages = std::clamp<int64_t>(first, 1, pages)};
}

}  // namespace moestro::decode
