// The KV pool's shared memory as plain structs. One process owns it (decode); others write into pages they hold a lease
// for (prefill). Offsets from the pool's start; little-endian.
//
//   [PoolHeader][LeaseSlot x lease_slots][page 0][page 1]...        pages start on a 4096-byte boundary
//   page: BF16 [num_layers][page_tokens][kv_dim], MLA: normalised latent (kv_lora_rank), then the rotated key;
//   GQA: the rotated keys of all kv heads, then their values
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace moestro {

inline constexpr uint64_t kKvPoolMagic = 0x3130564b54534f4dull;  // the bytes "MOSTKV01"
// 2: a lease may begin with pages that others read too. A writer of version 1 could write into them.
// 3: a writer renews its lease, and says when what it computed is no good. Leases of one that does not would time out.
inline constexpr uint32_t kKvPoolLayoutVersion = 3;
inline constexpr uint16_t kPoison = 0x7fc0;  // BF16 NaN: what tests have in pages that nobody may read
inline constexpr int64_t kPageTokens = 64;   // also the block over which attention is reduced in fixed order

struct KvGeometry {
  int64_t num_layers = 0;
  int64_t kv_dim = 0;  // numbers per token and layer
  int64_t page_tokens = kPageTokens;
  int64_t page_count = 0;
  int64_t lease_slots = 0;

  int64_t page_bytes() const { return num_layers * page_tokens * kv_dim * 2; }
};

// One lease: the right to fill a set of pages from token valid_tokens on. What lies before is immutable: other leases
// may read the same pages (a prefix that several requests share), and only the owner knows which.
//
// Life: free -> reserved (lease_id set by the owner) -> draining (revoked) -> free. Whoever writes into the pages holds
// `writer`, a robust process-shared mutex: the kernel releases it when a writer dies, so the owner never frees a page
// that someone may still write to, and never waits for the dead.
//
// Owner:  reserve: revoked = failed = 0, valid_tokens = those of the cached prefix, then lease_id = id (release order).
//         release: revoked = 1, then try the lock. Got it: lease_id = 0, unlock, the pages are free. Not: try again
//         later.
// Writer: try the lock, then compare lease_id and revoked, and write only while holding it. A writer that gets the lock
//         before the owner is seen by the owner; one that gets it after sees that the lease is over.
//         It counts `renewals` up as long as work on the lease goes on, from when it is in line for the writer: a
//         lease whose count stands still may be ended. (One that is meant for the slot's last lease renews the next
//         one's once, which does no harm.)
struct LeaseSlot {
  std::atomic<uint64_t> lease_id;  // 0 = free; never reused
  std::atomic<uint32_t> revoked;   // 1: the owner wants the pages back; writers stop at the next layer
  std::atomic<uint32_t> renewals;
  std::atomic<int64_t> valid_tokens;  // tokens whose KV is complete in all layers; release order
  std::atomic<uint32_t> failed;       // 1: what the pages hold gave no result, and is not to be used again
  alignas(64) pthread_mutex_t writer;
};

struct PoolHeader {
  uint64_t magic;  // written last, release order: 0 while the owner is still filling in the rest
  uint32_t layout_version;
  uint32_t reserved;
  uint64_t epoch;        // one per life of the owner
  char fingerprint[40];  // of the weights the KV belongs to
  KvGeometry geometry;
  int64_t slots_offset;
  int64_t pages_offset;
  int64_t total_bytes;
};

}  // namespace moestro
