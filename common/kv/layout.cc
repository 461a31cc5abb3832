#include "common/kv/layout.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"

namespace moestro::kv {
namespace {

constexpr int64_t kCacheLine = 64;
// The pages of KV begin on a page of memory, so that no header shares one with them.
constexpr int64_t kPagesAlignment = 4096;
constexpr int64_t kMaxIndex = std::numeric_limits<uint32_t>::max();

std::string ToString(const KvGeometry& g) {
  return absl::StrCat("num_layers=", g.num_layers, " kv_dim=", g.kv_dim, " kv_heads=", g.kv_heads,
                      " page_tokens=", g.page_tokens, " page_count=", g.page_count, " lease_slots=", g.lease_slots);
}

bool IsPositive(const KvGeometry& g) {
  return g.num_layers > 0 && g.kv_dim > 0 && g.page_tokens > 0 && g.page_count > 0 && g.lease_slots > 0;
}

// Whether the block's elements can be counted without overflow: rows of elements, or heads of equal size.
bool HasBlocks(const KvGeometry& g) {
  if (g.kv_heads == 0) return g.kv_dim <= std::numeric_limits<int64_t>::max() / g.page_tokens;
  return g.kv_heads > 0 && g.kv_dim <= kMaxIndex && g.kv_dim % (2 * std::min(g.kv_heads, kMaxIndex)) == 0 &&
         g.page_tokens == kPageTokens;
}

// Returns false on overflow. All factors are positive.
bool AllPagesBytes(const KvGeometry& g, int64_t& bytes) {
  return !__builtin_mul_overflow(g.num_layers, g.block_elements(), &bytes) &&
         !__builtin_mul_overflow(bytes, int64_t{2}, &bytes) && !__builtin_mul_overflow(bytes, g.page_count, &bytes);
}

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "a lock inside an atomic would not be shared between processes");
static_assert(alignof(LeaseSlot) == kCacheLine && sizeof(LeaseSlot) == 128, "LeaseSlot is part of the pool's format");
static_assert(sizeof(PoolHeader) == 200 && offsetof(PoolHeader, geometry) == 128, "PoolHeader is part of the format");

absl::StatusOr<KvLayout> ComputeKvLayout(const KvGeometry& geometry) {
  if (!IsPositive(geometry)) {
    return absl::InvalidArgumentError(absl::StrCat("KV pool: every number must be positive: ", ToString(geometry)));
  }
  if (!HasBlocks(geometry)) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV pool: kv_dim is not keys and values of kv_heads heads, or too large: ", ToString(geometry)));
  }
  if (geometry.page_count > kMaxIndex || geometry.lease_slots > kMaxIndex) {
    return absl::InvalidArgumentError(absl::StrCat("KV pool: too many pages or lease slots: ", ToString(geometry)));
  }
  KvLayout layout;
  layout.slots_offset = RoundUp(sizeof(PoolHeader), kCacheLine);
  // At most 2^32 slots of 128 bytes: no overflow.
  const int64_t slots_bytes = geometry.lease_slots * static_cast<int64_t>(sizeof(LeaseSlot));
  layout.pages_offset = RoundUp(layout.slots_offset + slots_bytes, kPagesAlignment);
  if (int64_t pages_bytes = 0; !AllPagesBytes(geometry, pages_bytes) ||
                               __builtin_add_overflow(layout.pages_offset, pages_bytes, &layout.total_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("KV pool: larger than any memory: ", ToString(geometry)));
  }
  return layout;
}

}  // namespace moestro::kv
