// What clients ask for, in their own terms: nothing is checked, and no default is filled in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/text/chat_template.h"

namespace moestro::router {

struct PlainText {
  std::string text;
};
using TokenList = std::vector<int32_t>;
// monostate: the client has set no prompt.
using PromptInput = std::variant<std::monostate, PlainText, TokenList, text::Chat>;

struct GenerateInput {
  PromptInput prompt;
  uint32_t max_tokens = 0;  // 0 = as many as the context and the server's default allow
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<int32_t> stop_ids;  // in addition to the model's own
  bool ignore_eos = false;        // drops the model's own
  std::string cache_scope;        // of the prefix cache; empty = the shared one
};

struct ScoreInput {
  PromptInput text;
  uint32_t top = 0;
};

struct TokenizeInput {
  std::variant<PlainText, text::Chat> text;
  bool plain = false;  // without BOS; ignored for a chat, whose template decides
};

struct DetokenizeInput {
  std::vector<int32_t> ids;
  bool keep_special_tokens = false;
};

}  // namespace moestro::router
