// Small tokenizers of the published kinds: byte-level BPE, tiktoken, SentencePiece with byte fallback.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text::grammar {

inline std::unique_ptr<const Tokenizer> PublishedTokenizer(const std::string& kind) {
  const nlohmann::json files = ReadGoldenJson("kinds/" + kind + ".json")["files"];
  const std::string document = files.value("tokenizer.json", ""), ranks = files.value("tiktoken.model", "");
  const std::string config = files.value("tokenizer_config.json", "");
  auto tokenizer =
      Tokenizer::Create({.tokenizer_json = document, .tiktoken_ranks = ranks, .tokenizer_config_json = config});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// Some id that ends texts.
inline int32_t SpecialToken(const Tokenizer& tokenizer) {
  for (int32_t id = tokenizer.size() - 1; id >= 0; --id) {
    if (tokenizer.IsSpecial(id)) return id;
  }
  ADD_FAILURE() << "the tokenizer has no special token";
  return -1;
}

// The first id with exactly this byte.
inline std::optional<int32_t> ByteToken(const Tokenizer& tokenizer, char byte) {
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.IsSpecial(id) && tokenizer.DecodeBytes(id) == std::string(1, byte)) return id;
  }
  return std::nullopt;
}

}  // namespace moestro::text::grammar
