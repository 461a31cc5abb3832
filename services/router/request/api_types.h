// What clients ask for, in their own terms: nothing is checked, and no default is filled in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "common/inference/types.h"
#include "common/text/chat_template.h"

namespace moestro::router {

struct PlainText {
  std::string text;
  // A client has rendered a conversation to it: what spells a control token is that token. Else it is data.
  bool rendered = false;
};
using TokenList = std::vector<int32_t>;
// monostate: the client has set no prompt.
using PromptInput = std::variant<std::monostate, PlainText, TokenList, text::Chat>;

struct GenerateInput {
  PromptInput prompt;
  uint32_t max_tokens = 0;  // 0 = DefaultMaxTokens (prepare.h)
  uint32_t choices = 1;     // of the same request, this one included: a key's tokens must do for all of them
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<int32_t> stop_ids;  // in addition to the model's own
  bool ignore_eos = false;        // drops the model's own
  std::string cache_scope;        // of the prefix cache; empty = the shared one
  std::vector<std::string> stop;  // texts that end the answer, and are not part of it
  bool keep_stop_text = false;    // the one that ended it is a part of it all the same
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, bias
  uint32_t top_logprobs = 0;                          // alternatives with each token
  bool keep_special_tokens = false;                   // in the text: parsers of tool calls need them
  std::string request_id;                             // empty = drawn by the router
  Constraint constraint;
  std::string constraint_field = "constraint.text";  // what errors call its text
  std::optional<PromptWay> way;                      // nullopt: the router chooses
};

struct ScoreInput {
  PromptInput text;
  uint32_t top = 0;
  std::optional<PromptWay> way = {};  // nullopt: in place
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
