// What clients ask for, as they ask it: nothing is checked or filled in yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/text/chat_template.h"

namespace moestro {

struct PlainText {
  std::string text;
};
using TokenList = std::vector<int32_t>;
using ChatMessages = std::vector<ChatMessage>;
// monostate: the client has set none.
using PromptInput = std::variant<std::monostate, PlainText, TokenList, ChatMessages>;

struct GenerateInput {
  PromptInput prompt;
  uint32_t max_tokens = 0;  // 0 = as many as the context and the server's default allow
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<int32_t> stop_ids;  // besides the model's own
  bool ignore_eos = false;        // leaves the model's own out
  std::string cache_scope;        // of the prefix cache; empty = the shared one
};

struct ScoreInput {
  PromptInput text;
  uint32_t top = 0;
};

struct TokenizeInput {
  std::variant<PlainText, ChatMessages> text;
  bool plain = false;  // without BOS; a chat's template decides itself
};

struct DetokenizeInput {
  std::vector<int32_t> ids;
  bool keep_special_tokens = false;
};

}  // namespace moestro
