// Spelling and ids of DeepSeek-V3's control tokens. The bars are U+FF5C, the low lines U+2581.
#pragma once

#include <cstdint>

namespace moestro {

inline constexpr int64_t kBosId = 0;
inline constexpr int64_t kEosId = 1;
inline constexpr int64_t kPadId = 2;
// Ordinary tokens follow; the tokens of the chat layout come after the last of them.
inline constexpr int64_t kFirstOrdinaryId = 3;

inline constexpr char kBosToken[] = "<｜begin▁of▁sentence｜>";
inline constexpr char kEosToken[] = "<｜end▁of▁sentence｜>";
inline constexpr char kPadToken[] = "<｜▁pad▁｜>";
inline constexpr char kUserToken[] = "<｜User｜>";
inline constexpr char kAssistantToken[] = "<｜Assistant｜>";

}  // namespace moestro
