// The packed block of a page and layer, for grouped queries: one KV head after the other, its keys as the packed BF16
// matrix [kBlockTokens, dim], then its values as [dim, kBlockTokens], both in the order of packed_matrix.h. So kernels
// take keys and values as they lie, for one token's queries in the order of addresses.
//
// Keys of absent tokens are anything. Values of absent tokens are finite, since kernels multiply them by zero: whoever
// stores a block's first token makes them zeros (KvPages::BeginBlocks).
#pragma once

#include <cstdint>

#include "common/tensor/packed_matrix.h"

namespace moestro::kv {

inline constexpr int64_t kBlockTokens = 64;

// Blocks of one partial result of attention (flash decoding), from a sequence's block 0 on. Long enough that merging
// (one pass over the sums) is negligible beside 16 passes over keys and values. Short enough that 4K tokens give work
// to four threads.
inline constexpr int64_t kSplitBlocks = 16;
// The NUMA domain whose memory holds a sequence's block, and whose workers attend to it: splits take turns.
constexpr int64_t DomainOfBlock(int64_t block, int64_t domains) { return block / kSplitBlocks % domains; }

// Numbers are of BF16 elements, from the block's begin on.
struct PackedHeads {
  int64_t kv_heads = 0;
  int64_t dim = 0;  // of a key, and of a value

  constexpr int64_t key_elements() const { return kBlockTokens * PaddedCols(dim); }
  constexpr int64_t value_elements() const { return PaddedRows(dim) * kBlockTokens; }
  constexpr int64_t head_elements() const { return key_elements() + value_elements(); }
  constexpr int64_t elements() const { return kv_heads * head_elements(); }
  constexpr int64_t Keys(int64_t head) const { return head * head_elements(); }
  constexpr int64_t Values(int64_t head) const { return Keys(head) + key_elements(); }
  constexpr int64_t Key(int64_t head, int64_t token, int64_t i) const {
    return Keys(head) + PackedElement(PaddedCols(dim), token, i);
  }
  constexpr int64_t Value(int64_t head, int64_t token, int64_t i) const {
    return Values(head) + PackedElement(kBlockTokens, i, token);
  }
};

}  // namespace moestro::kv
