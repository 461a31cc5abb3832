// Runs an engine in tests: KV pages of one sequence, prompts in chunks, results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/model/engine.h"
#include "tests/support/aligned_memory.h"

namespace moestro::model {

using Logits = std::vector<std::vector<float>>;  // [token][vocab_size]

// KV memory of one sequence, with its pages out of order. Filled with NaN, so that reads of unwritten memory show.
class TestSequence {
 public:
  TestSequence(const weights::ModelSpec& spec, int64_t tokens);

  kv::KvPages pages() const { return {geometry_, memory_.data(), pages_}; }
  // The cached elements of the first `tokens` tokens, layer by layer.
  std::vector<uint16_t> Contents(int64_t tokens) const;

 private:
  kv::KvGeometry geometry_;
  AlignedMemory memory_;
  std::vector<uint32_t> pages_;
};

inline absl::Status NeverInterrupted() { return absl::OkStatus(); }

// Rows for tokens[0..] from `position` on; all need logits.
std::vector<EngineRow> MakeRows(std::span<const int32_t> tokens, int64_t position, int32_t sequence = 0);

// One Forward over `rows`, which must succeed: the logits of the rows that need them.
Logits Forward(Engine& engine, std::span<const EngineRow> rows, std::span<const kv::KvPages> sequences, MlaForm form);

// The tokens from position 0 on, `chunk` rows at a time: logits of all of them.
Logits RunPrompt(Engine& engine, const TestSequence& sequence, std::span<const int32_t> tokens, int64_t chunk,
                 MlaForm form);

// Reproducible ids in [0, token_count).
std::vector<int32_t> RandomTokens(int64_t count, int64_t token_count, uint64_t seed);

// Whether all numbers have equal bits.
bool SameBits(const Logits& a, const Logits& b);
// A text of their bits, for comparisons between processes.
std::string BitsOf(const Logits& logits);

}  // namespace moestro::model
