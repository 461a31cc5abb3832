// Prompts of random token ids. The same seed gives the same prompts. Thread-compatible.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace moestro::loadtest {

using Engine = std::mt19937_64;

class PromptMaker {
 public:
  // Ids are in [0, vocab_size). REQUIRES: vocab_size > 0.
  PromptMaker(int64_t vocab_size, uint64_t seed) : vocab_size_(vocab_size), seed_(seed), engine_(seed) {}

  // Shares no prefix with any other prompt, except by chance.
  std::vector<int32_t> Random(int64_t tokens);
  // The first `tokens` ids of an endless sequence identified by `name`.
  std::vector<int32_t> Prefix(const std::string& name, int64_t tokens) const;
  // A prompt of `tokens` ids whose first `prefix_tokens` are those of `name`. REQUIRES: prefix_tokens <= tokens.
  std::vector<int32_t> WithPrefix(const std::string& name, int64_t prefix_tokens, int64_t tokens);

 private:
  const int64_t vocab_size_;
  const uint64_t seed_;
  Engine engine_;
};

}  // namespace moestro::loadtest
