#include "tests/common/model/engine_harness.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "gtest/gtest.h"

namespace moestro::model {

TestSequence::TestSequence(const weights::ModelSpec& spec, int64_t tokens) {
  const int64_t used = CeilDiv(tokens, kv::kPageTokens);
  geometry_ = {.num_layers = spec.num_layers,
               .kv_dim = spec.kv_dim(),
               .kv_heads = spec.num_kv_heads,
               .page_count = 2 * used + 1};
  memory_ = AlignedMemory(geometry_.page_count * geometry_.page_bytes());
  std::memset(memory_.data(), 0xff, memory_.size());
  for (int64_t i = 0; i < used; ++i) pages_.push_back(static_cast<uint32_t>(2 * (used - i)));
}

std::vector<uint16_t> TestSequence::Contents(int64_t tokens) const {
  std::vector<uint16_t> contents;
  for (int64_t layer = 0; layer < geometry_.num_layers; ++layer) {
    for (int64_t position = 0; position < tokens; ++position) {
      std::vector<uint16_t> entry(static_cast<size_t>(geometry_.kv_dim));
      pages().Read(layer, position, entry.data());
      contents.insert(contents.end(), entry.begin(), entry.end());
    }
  }
  return contents;
}

std::vector<EngineRow> MakeRows(std::span<const int32_t> tokens, int64_t position, int32_t sequence) {
  std::vector<EngineRow> rows;
  for (const int32_t token : tokens) {
    rows.push_back({token, static_cast<int32_t>(position + static_cast<int64_t>(rows.size())), sequence, true});
  }
  return rows;
}

Logits Forward(Engine& engine, std::span<const EngineRow> rows, std::span<const kv::KvPages> sequences, MlaForm form) {
  Logits result;
  const absl::Status status = engine.Forward(
      {rows, sequences, form}, NeverInterrupted,
      [&](int64_t, std::span<const float> logits) { result.emplace_back(logits.begin(), logits.end()); });
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

Logits RunPrompt(Engine& engine, const TestSequence& sequence, std::span<const int32_t> tokens, int64_t chunk,
                 MlaForm form) {
  Logits result;
  const kv::KvPages pages[] = {sequence.pages()};
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min<size_t>(chunk, tokens.size() - begin));
    for (auto& logits : Forward(engine, MakeRows(part, static_cast<int64_t>(begin)), pages, form)) {
      result.push_back(std::move(logits));
    }
  }
  return result;
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t token_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % token_count));
  return tokens;
}

bool SameBits(const Logits& a, const Logits& b) {
  return std::ranges::equal(a, b, [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

std::string BitsOf(const Logits& logits) {
  std::string bytes;
  for (const std::vector<float>& row : logits) {
    bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return absl::StrFormat("%016x", std::hash<std::string>()(bytes));
}

}  // namespace moestro::model
