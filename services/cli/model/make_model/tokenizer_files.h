// tokenizer.json and tokenizer_config.json of every generated model: a byte-level BPE of 1200 merges, trained on prose,
// code, numbers and CJK, with DeepSeek-V3's pre-tokenizer, control tokens and chat layout. The files are in tokenizer/
// and embedded in the binary.
#pragma once

#include <cstdint>
#include <string_view>

namespace moestro::cli {

extern const std::string_view kTokenizerJson;
extern const std::string_view kTokenizerConfigJson;

// Values from these files that the model's other files need.
inline constexpr int64_t kBosId = 0;
inline constexpr int64_t kEosId = 1;
inline constexpr int64_t kTokenCount = 1461;  // highest id + 1: embedding and head rows from here on are padding

}  // namespace moestro::cli
