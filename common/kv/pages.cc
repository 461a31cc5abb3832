#include "common/kv/pages.h"

#include <algorithm>

namespace moestro::kv {

void KvPages::BeginBlocks(int64_t layer, int64_t begin, int64_t end) const {
  // Of the blocks that begin here, only the last has absent tokens.
  const int64_t block = end / kPageTokens, first = block * kPageTokens;
  if (geometry_.kv_heads == 0 || first < begin || first == end) return;
  const PackedHeads heads = geometry_.heads();
  for (int64_t head = 0; head < heads.kv_heads; ++head) {
    std::fill_n(Block(layer, block) + heads.Values(head), heads.value_elements(), uint16_t{0});
  }
}

void KvPages::Store(int64_t layer, int64_t position, const uint16_t* entry) const {
  if (geometry_.kv_heads == 0) {
    std::copy_n(entry, geometry_.kv_dim, Token(layer, position));
    return;
  }
  const PackedHeads heads = geometry_.heads();
  uint16_t* const block = Block(layer, position / kPageTokens);
  const int64_t token = position % kPageTokens;
  const uint16_t* values = entry + heads.kv_heads * heads.dim;
  for (int64_t head = 0; head < heads.kv_heads; ++head) {
    for (int64_t i = 0; i < heads.dim; ++i) block[heads.Key(head, token, i)] = *entry++;
    for (int64_t i = 0; i < heads.dim; ++i) block[heads.Value(head, token, i)] = *values++;
  }
}

void KvPages::Read(int64_t layer, int64_t position, uint16_t* entry) const {
  if (geometry_.kv_heads == 0) {
    std::copy_n(Token(layer, position), geometry_.kv_dim, entry);
    return;
  }
  const PackedHeads heads = geometry_.heads();
  const uint16_t* const block = Block(layer, position / kPageTokens);
  const int64_t token = position % kPageTokens;
  uint16_t* values = entry + heads.kv_heads * heads.dim;
  for (int64_t head = 0; head < heads.kv_heads; ++head) {
    for (int64_t i = 0; i < heads.dim; ++i) *entry++ = block[heads.Key(head, token, i)];
    for (int64_t i = 0; i < heads.dim; ++i) *values++ = block[heads.Value(head, token, i)];
  }
}

void KvPages::StoreRows(int64_t layer, IndexRange positions, const uint16_t* entries) const {
  BeginBlocks(layer, positions.begin, positions.end);
  for (int64_t position = positions.begin; position < positions.end; ++position, entries += geometry_.kv_dim) {
    Store(layer, position, entries);
  }
}

void KvPages::ReadRows(int64_t layer, IndexRange positions, uint16_t* entries) const {
  for (int64_t position = positions.begin; position < positions.end; ++position, entries += geometry_.kv_dim) {
    Read(layer, position, entries);
  }
}

}  // namespace moestro::kv
