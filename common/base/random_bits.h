// The counter-based random source: any element of any tensor can be computed alone, in any order, on any thread.
// cli/model/make_model/GENERATOR.md specifies it for other languages.
#pragma once

#include <cstdint>
#include <string_view>

namespace moestro {

// A bijection of 64-bit words: each changed input bit changes about half of the output bits (the SplitMix64 finaliser).
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bits.
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// The random words of one tensor. Word i depends only on (seed, name, i).
class RandomWords {
 public:
  constexpr RandomWords(uint64_t seed, std::string_view name) : key_(MixBits(MixBits(seed) ^ HashName(name))) {}
  constexpr uint64_t operator[](uint64_t i) const { return MixBits(key_ + (i + 1) * 0x9e3779b97f4a7c15u); }

 private:
  uint64_t key_;
};

}  // namespace moestro
