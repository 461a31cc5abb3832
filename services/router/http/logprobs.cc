#include "services/router/http/logprobs.h"

#include <algorithm>
#include <string>
#include <utility>

namespace moestro::router {
namespace {

// JSON has no infinity. OpenAI's API writes this for tokens that are all but impossible.
constexpr float kLeast = -9999;

OrderedJson Entry(int32_t id, float logprob, const ModelText& text) {
  OrderedJson bytes = OrderedJson::array();
  for (const char c : text.Bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text.Piece(id)}, {"logprob", std::max(logprob, kLeast)}, {"bytes", std::move(bytes)}};
}

}  // namespace

OrderedJson ChatLogprobs(const std::vector<Token>& tokens, const ModelText& text) {
  OrderedJson content = OrderedJson::array();
  for (const Token& token : tokens) {
    OrderedJson entry = Entry(token.id, token.logprob, text);
    entry["top_logprobs"] = OrderedJson::array();
    for (const TokenAlternative& other : token.top) {
      entry["top_logprobs"].push_back(Entry(other.id, other.logprob, text));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void CompletionLogprobs::Add(const ScoredToken& token, bool spells_special) {
  const std::string piece = text_.Piece(token.id);
  tokens_.push_back(piece);
  logprobs_.push_back(token.logprob ? OrderedJson(std::max(*token.logprob, kLeast)) : OrderedJson(nullptr));
  offsets_.push_back(offset_);
  // A character counts where it begins: several tokens may share one.
  if (spells_special || !text_.IsSpecial(token.id)) {
    const auto begins = [](char c) { return (c & 0xC0) != 0x80; };
    offset_ += static_cast<size_t>(std::ranges::count_if(text_.Bytes(token.id), begins));
  }
  if (!alternatives_ || !token.logprob) {
    top_.push_back(nullptr);
    return;
  }
  OrderedJson others = OrderedJson::object();
  for (const TokenAlternative& other : token.top) others[text_.Piece(other.id)] = std::max(other.logprob, kLeast);
  others[piece] = std::max(*token.logprob, kLeast);  // also where it is not among the most likely
  top_.push_back(std::move(others));
}

OrderedJson CompletionLogprobs::Take() {
  return {{"tokens", std::exchange(tokens_, OrderedJson::array())},
          {"token_logprobs", std::exchange(logprobs_, OrderedJson::array())},
          {"top_logprobs", std::exchange(top_, OrderedJson::array())},
          {"text_offset", std::exchange(offsets_, OrderedJson::array())}};
}

}  // namespace moestro::router
