#include "loadtest/workloads/prompts.h"

namespace moestro::loadtest {
namespace {

void Append(Engine& engine, int64_t vocab_size, int64_t tokens, std::vector<int32_t>& ids) {
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab_size - 1));
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(id(engine));
}

// FNV-1a: the same on every machine, unlike std::hash.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::vector<int32_t> PromptMaker::Random(int64_t tokens) {
  std::vector<int32_t> ids;
  Append(engine_, vocab_size_, tokens, ids);
  return ids;
}

std::vector<int32_t> PromptMaker::Prefix(const std::string& name, int64_t tokens) const {
  Engine engine(seed_ ^ Hash(name));
  std::vector<int32_t> ids;
  Append(engine, vocab_size_, tokens, ids);
  return ids;
}

std::vector<int32_t> PromptMaker::WithPrefix(const std::string& name, int64_t prefix_tokens, int64_t tokens) {
  std::vector<int32_t> ids = Prefix(name, prefix_tokens);
  Append(engine_, vocab_size_, tokens - prefix_tokens, ids);
  return ids;
}

}  // namespace moestro::loadtest
