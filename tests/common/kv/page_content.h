// KV contents for tests: every full block holds a number computed from all tokens up to its end, as real KV does. So a
// page of other tokens is detected.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "common/kv/pages.h"

namespace moestro::testing {

// Calls visit(block, content) for the first `end` blocks of a sequence that begins with `tokens`, which cover these
// blocks.
template <typename Visit>
void ForEachBlock(std::span<const int32_t> tokens, int64_t page_tokens, int64_t end, const Visit& visit) {
  uint64_t content = 0xcbf29ce484222325ull;
  for (int64_t block = 0; block < end; ++block) {
    for (const int32_t token : tokens.subspan(block * page_tokens, page_tokens)) {
      content = (content ^ static_cast<uint32_t>(token)) * 0x100000001b3ull;
    }
    visit(block, content);
  }
}

// Writes blocks [begin, end).
inline void WriteBlocks(const kv::KvPages& pages, std::span<const int32_t> tokens, int64_t begin, int64_t end) {
  ForEachBlock(tokens, pages.geometry().page_tokens, end, [&](int64_t block, uint64_t content) {
    if (block >= begin) std::memcpy(pages.Block(0, block), &content, sizeof(content));
  });
}

// Whether the first `end` blocks hold the contents for `tokens`.
inline bool HoldsBlocks(const kv::KvPages& pages, std::span<const int32_t> tokens, int64_t end) {
  bool same = true;
  ForEachBlock(tokens, pages.geometry().page_tokens, end, [&](int64_t block, uint64_t content) {
    same = same && std::memcmp(pages.Block(0, block), &content, sizeof(content)) == 0;
  });
  return same;
}

}  // namespace moestro::testing
