// The KV pool's shared memory as plain structs. Decode owns it; prefill writes into pages for which it holds a lease.
// Offsets are from the pool's start; little-endian.
//
//   [PoolHeader][LeaseSlot x lease_slots][page 0][page 1]...        pages start on a 4096-byte boundary
//   page: [num_layers] blocks of a layer, BF16. What a token puts into one, its entry, is kv_dim numbers:
//     MLA: the normalised latent (kv_lora_rank), then the rotated key. A block is rows: [page_tokens][kv_dim]
//     GQA: the rotated keys of all KV heads, then their values. A block is packed (kv_block.h)
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "common/kv/kv_block.h"

namespace moestro::kv {

inline constexpr uint64_t kKvPoolMagic = 0x3130564b54534f4dull;  // the bytes "MOSTKV01"
// 2: a lease may begin with pages that others read too; a writer of version 1 could write into them.
// 3: a writer renews its lease, and reports a failed computation. Leases of a writer that does not renew would time
// out.
// 4: blocks for grouped queries are packed.
// 5: the header has the flags of its owner that change the KV's numbers.
inline constexpr uint32_t kKvPoolLayoutVersion = 5;
inline constexpr uint16_t kPoison = 0x7fc0;           // BF16 NaN: tests fill pages that nobody may read with it
inline constexpr int64_t kPageTokens = kBlockTokens;  // also the block over which attention is reduced in fixed order

struct KvGeometry {
  int64_t num_layers = 0;
  int64_t kv_dim = 0;    // elements per token and layer
  int64_t kv_heads = 0;  // of a packed block, whose heads have as many elements in a key as in a value; 0: rows
  int64_t page_tokens = kPageTokens;
  int64_t page_count = 0;
  int64_t lease_slots = 0;

  PackedHeads heads() const { return {kv_heads, kv_dim / (2 * kv_heads)}; }  // REQUIRES: kv_heads > 0
  int64_t block_elements() const { return kv_heads > 0 ? heads().elements() : page_tokens * kv_dim; }
  int64_t page_bytes() const { return num_layers * block_elements() * 2; }
};

// What all KV of a pool is computed from. Whoever writes into the pool has the same.
struct KvOrigin {
  std::string fingerprint;  // of the weights
  std::string flags = "";   // of the role that change the numbers, as a user gives them: "--int8-activations all"
};

// One lease: the right to write a set of pages from token valid_tokens on. Earlier tokens are immutable: other leases
// may read the same pages (a prefix that several requests share), and only the owner knows which.
//
// Life: free -> reserved (lease_id set by the owner) -> draining (revoked) -> free. A writer of the pages holds
// `writer`, a robust process-shared mutex. The kernel releases it when the writer dies. So the owner never frees a page
// that a writer may still write, and never waits for a dead one.
//
// Owner:  reserve: revoked = failed = 0, valid_tokens = those of the cached prefix, then lease_id = id (release order).
//         release: revoked = 1, then try the lock. Locked: lease_id = 0, unlock, the pages are free. Not locked: retry
//         later.
// Writer: try the lock, then check lease_id and revoked, and write only while holding the lock. If the writer locks
//         first, the owner sees it; if the owner locks first, the writer sees that the lease is over.
//         The writer increments `renewals` while work on the lease continues, from the time the lease is queued. The
//         owner may end a lease whose count stops advancing. (A late renewal meant for the slot's previous lease renews
//         the current one once, which is harmless.)
struct LeaseSlot {
  std::atomic<uint64_t> lease_id;  // 0 = free; never reused
  std::atomic<uint32_t> revoked;   // 1: the owner wants the pages back; writers stop at the next layer
  std::atomic<uint32_t> renewals;
  std::atomic<int64_t> valid_tokens;  // tokens whose KV is complete in all layers; release order
  std::atomic<uint32_t> failed;       // 1: the pages gave no result and must not be used again
  alignas(64) pthread_mutex_t writer;
};

struct PoolHeader {
  uint64_t magic;  // written last, release order: 0 until the owner has filled in the rest
  uint32_t layout_version;
  uint32_t reserved;
  uint64_t epoch;        // one per lifetime of the owner
  char fingerprint[40];  // of the weights to which the KV belongs
  char flags[64];        // KvOrigin::flags
  KvGeometry geometry;
  int64_t slots_offset;
  int64_t pages_offset;
  int64_t total_bytes;
};

}  // namespace moestro::kv
