// The pre-tokenizer of DeepSeek-V3 and R1: three isolating splits, one after the other, then the byte level.
#pragma once

#include <array>
#include <string_view>

namespace moestro {

// In Oniguruma's syntax, in the order of application.
inline constexpr std::array<std::string_view, 3> kDeepSeekV3Patterns = {
    R"(\p{N}{1,3})",
    // CJK ideographs U+4E00-U+9FA5, Hiragana, Katakana.
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+)"
    R"(|\s+(?!\S))"
    R"(|\s+)",
};

// What a byte-level pre-tokenizer with use_regex applies (GPT-2).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace moestro
