// Log-probabilities of tokens as OpenAI's APIs have them.
#pragma once

#include <vector>

#include "common/inference/types.h"
#include "services/router/http/frames.h"
#include "services/router/text/model_text.h"

namespace moestro::router {

// Of chat completions: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
OrderedJson ChatLogprobs(const std::vector<Token>& tokens, const ModelText& text);

// Of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, each a list with an entry for each
// token.
class CompletionLogprobs {
 public:
  // `text` must outlive this. `alternatives`: whether top_logprobs are wanted.
  CompletionLogprobs(const ModelText& text, bool alternatives) : text_(text), alternatives_(alternatives) {}

  // Of a prompt; the first has no log-probability. `spells_special`: the choice's text has special tokens, too.
  void Add(const ScoredToken& token, bool spells_special);
  void Add(const Token& token) {
    Add(ScoredToken{.id = token.id, .logprob = token.logprob, .top = token.top}, /*spells_special=*/false);
  }
  OrderedJson Take();  // what was added since the last Take

 private:
  const ModelText& text_;
  const bool alternatives_;
  size_t offset_ = 0;  // in the choice's text, in code points
  OrderedJson tokens_ = OrderedJson::array();
  OrderedJson logprobs_ = OrderedJson::array();
  OrderedJson top_ = OrderedJson::array();
  OrderedJson offsets_ = OrderedJson::array();
};

}  // namespace moestro::router
