// A tokenizer whose token ids are byte values, plus one merge and a few control tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/text/byte_level.h"

namespace moestro::testing {

inline constexpr int32_t kHi = 256;  // "hi", the only merge
inline constexpr int32_t kBos = 257;
inline constexpr int32_t kEnd = 258;
inline constexpr int32_t kUser = 259;
inline constexpr int32_t kAssistant = 260;
inline constexpr int32_t kThink = 261;
inline constexpr int32_t kEndThink = 262;
inline constexpr int32_t kTokenCount = 263;

inline std::string TinyTokenizerJson() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[text::SpellBytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["hi"] = kHi;
  nlohmann::json added = nlohmann::json::array();
  const auto add = [&](int32_t id, const char* content, bool special) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"special", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  };
  add(kBos, "<|bos|>", true);
  add(kEnd, "<|end|>", true);
  add(kUser, "<|user|>", false);
  add(kAssistant, "<|assistant|>", false);
  add(kThink, "<think>", false);
  add(kEndThink, "</think>", false);
  const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const nlohmann::json document = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array({"h i"})}}}};
  return document.dump();
}

}  // namespace moestro::testing
