// The owner's side of the KV pool: which pages are whose. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/format.h"
#include "common/kv/pages.h"
#include "common/platform/shared_memory.h"

namespace moestro {

struct KvLease {
  uint32_t slot = 0;
  uint64_t id = 0;
  std::vector<uint32_t> pages;
};

class KvPool {
 public:
  // Creates shared memory `name`, all of it reserved at once. RESOURCE_EXHAUSTED names bytes and the remedy;
  // ALREADY_EXISTS if the name is taken; INVALID_ARGUMENT for a geometry that is not positive or too large, or a
  // fingerprint that does not fit PoolHeader.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const std::string& name, uint64_t epoch,
                                                        const std::string& fingerprint, const KvGeometry& geometry);
  ~KvPool();  // revokes all leases and unlinks the name; writers keep what they have mapped

  // Room for `tokens` tokens, all or nothing, lowest free pages first. The pages are not cleared: nothing in them may
  // be read before it is written (valid_tokens tells). RESOURCE_EXHAUSTED if pages or slots are short now,
  // INVALID_ARGUMENT if the pool could never hold that many, or for tokens < 1.
  absl::StatusOr<KvLease> Reserve(int64_t tokens);

  // Gives a lease back. Its pages are free at once, or as soon as the process that writes them stops or dies (Sweep).
  // A lease that was given back before is ignored.
  void Release(const KvLease& lease);

  // Frees the pages of released leases whose writer is gone. Called periodically by the owner, and by Reserve.
  void Sweep();

  // Tokens whose KV may be read, at most what lease.pages hold; 0 once the lease was given back. Acquire order.
  int64_t ValidTokens(const KvLease& lease) const;
  // The owner's own writing, at most what lease.pages hold. Release order. Ignored once the lease was given back.
  void PublishValidTokens(const KvLease& lease, int64_t tokens);
  KvPages Pages(const KvLease& lease) const;  // borrows lease.pages

  struct Stats {
    int64_t total_pages = 0;
    int64_t free_pages = 0;
    int64_t leased_pages = 0;
    int64_t draining_pages = 0;  // released, but a writer has not let go yet
    int64_t leases = 0;
  };
  Stats stats() const;  // total == free + leased + draining, always
  const std::string& name() const;
  const KvGeometry& geometry() const;
  uint64_t epoch() const;

 private:
  struct Impl;
  explicit KvPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
