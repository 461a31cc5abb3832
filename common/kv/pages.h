// A sequence's KV cache for the engine: pages in token order inside one mapped pool.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/kv/format.h"

namespace moestro::kv {

// A view: the pool's mapping and the page list must outlive it. Copyable.
class KvPages {
 public:
  KvPages() = default;
  // pages_base: address of page 0. lease: KvLease::id, a key for copies of the pages, since an id always names the same
  // contents. 0: none.
  KvPages(const KvGeometry& geometry, uint8_t* pages_base, std::span<const uint32_t> pages, uint64_t lease = 0)
      : geometry_(geometry), base_(pages_base), pages_(pages), lease_(lease) {}

  // Tokens that fit into the pages.
  int64_t capacity() const { return static_cast<int64_t>(pages_.size()) * geometry_.page_tokens; }
  const KvGeometry& geometry() const { return geometry_; }
  uint8_t* base() const { return base_; }
  std::span<const uint32_t> numbers() const { return pages_; }
  uint64_t lease() const { return lease_; }
  // The pool's page for the tokens from position block * page_tokens on, and its memory, all layers.
  uint32_t page(int64_t block) const { return pages_[block]; }
  const uint8_t* PageMemory(int64_t block) const { return base_ + pages_[block] * geometry_.page_bytes(); }

  // One layer's block: the tokens from position block * page_tokens on, in rows or packed.
  uint16_t* Block(int64_t layer, int64_t block) const {
    return reinterpret_cast<uint16_t*>(base_ + pages_[block] * geometry_.page_bytes()) +
           layer * geometry_.block_elements();
  }
  // BF16 [kv_dim] of one token. REQUIRES: blocks of rows.
  uint16_t* Token(int64_t layer, int64_t position) const {
    return Block(layer, position / geometry_.page_tokens) + position % geometry_.page_tokens * geometry_.kv_dim;
  }

  // To be called before tokens [begin, end) are stored, for all of them, by one thread: whatever a page's last lease
  // left there must not meet the new tokens. Earlier tokens of a block stay.
  void BeginBlocks(int64_t layer, int64_t begin, int64_t end) const;
  // Stores a token's entry, BF16 [kv_dim], and reads it. Different tokens may be stored at a time.
  void Store(int64_t layer, int64_t position, const uint16_t* entry) const;
  void Read(int64_t layer, int64_t position, uint16_t* entry) const;
  // The same of all these positions, [positions, kv_dim]. Blocks that begin there are begun.
  void StoreRows(int64_t layer, IndexRange positions, const uint16_t* entries) const;
  void ReadRows(int64_t layer, IndexRange positions, uint16_t* entries) const;

 private:
  KvGeometry geometry_;
  uint8_t* base_ = nullptr;
  std::span<const uint32_t> pages_;
  uint64_t lease_ = 0;
};

}  // namespace moestro::kv
