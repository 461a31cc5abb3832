// The tokens that may come next: one bit for each id.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace moestro::text::grammar {

class TokenMask {
 public:
  explicit TokenMask(int32_t token_count = 0) : words_((token_count + 31) / 32, 0) {}

  bool Allows(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id / 32) < words_.size() && ((words_[id / 32] >> (id % 32)) & 1) != 0;
  }
  // `id` must be below token_count.
  void Allow(int32_t id) { words_[id / 32] |= uint32_t{1} << (id % 32); }
  void Forbid(int32_t id) { words_[id / 32] &= ~(uint32_t{1} << (id % 32)); }
  void AllowAll(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool empty() const { return count() == 0; }
  int64_t count() const {
    int64_t count = 0;
    for (const uint32_t word : words_) count += std::popcount(word);
    return count;
  }
  // Bit id % 32 of word id / 32.
  std::span<const uint32_t> words() const { return words_; }
  bool operator==(const TokenMask&) const = default;

 private:
  std::vector<uint32_t> words_;
};

}  // namespace moestro::text::grammar
