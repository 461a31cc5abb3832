#include "services/router/http/llama_endpoints.h"

#include <utility>

#include "common/base/status.h"
#include "common/process/node_options.h"
#include "common/text/json/json.h"
#include "services/router/http/chat_fields.h"
#include "services/router/http/frames.h"
#include "services/router/http/request_fields.h"

namespace moestro::router {
namespace {

using nlohmann::json;

// llama-server has the text in `content`, vLLM in `prompt`, or a chat in `messages`. `pieces`: each token's text, too.
struct TokenizeRequest {
  TokenizeInput input;
  bool pieces = false;
};

absl::StatusOr<TokenizeRequest> ReadTokenize(std::string_view body, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  TokenizeRequest request;
  if (fields.Has("messages")) {
    MOE_ASSIGN_OR_RETURN(request.input.text, ReadChat(parsed, body));
  } else {
    const char* key = fields.Has("prompt") ? "prompt" : "content";
    if (!fields.Has(key)) fields.Fail(key, "missing");
    request.input.text = PlainText{fields.StringOr(key, "")};
  }
  // llama-server adds BOS on request only, vLLM unless told otherwise.
  const bool special = fields.BoolOr("add_special_tokens", fields.BoolOr("add_special", fields.Has("prompt")));
  request.input.plain = !special;
  request.pieces = fields.BoolOr("with_pieces", false) || fields.BoolOr("return_token_strs", false);
  MOE_RETURN_IF_ERROR(status);
  return request;
}

absl::StatusOr<DetokenizeInput> ReadDetokenize(std::string_view body, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  DetokenizeInput input;
  if (!fields.Has("tokens")) fields.Fail("tokens", "missing");
  if (fields.ok()) input.ids = ReadIds(fields, "tokens");
  input.keep_special_tokens = !fields.BoolOr("skip_special_tokens", true);
  MOE_RETURN_IF_ERROR(status);
  return input;
}

absl::StatusOr<text::Chat> ReadTemplateChat(std::string_view body, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  return ReadChat(parsed, body);
}

}  // namespace

absl::Status HandleTokenize(const HttpApi& api, HttpRequest& http, Response& response) {
  const ClientCall& call = response.call();
  bool pieces = false;
  const auto read = [&](const ServedModel& model) -> absl::StatusOr<TokenizeInput> {
    const RequestBody body = std::move(http.body);
    MOE_ASSIGN_OR_RETURN(TokenizeRequest request, ReadTokenize(body.text, model));
    pieces = request.pieces;
    return std::move(request.input);
  };
  MOE_ASSIGN_OR_RETURN(const RequestRunner::Tokens tokens,
                       api.runner.Tokenize(read, call.bytes(), [&] { return call.Check(); }));
  OrderedJson reply{
      {"tokens", tokens.ids}, {"count", tokens.ids.size()}, {"max_model_len", tokens.model->max_context_tokens}};
  if (pieces) {
    OrderedJson texts = OrderedJson::array();
    for (const int32_t id : tokens.ids) texts.push_back(tokens.model->text->Piece(id));
    reply["token_strs"] = std::move(texts);
  }
  return response.SendJson(200, Dump(reply));
}

absl::Status HandleDetokenize(const HttpApi& api, HttpRequest& http, Response& response) {
  const ClientCall& call = response.call();
  const auto read = [&](const ServedModel& model) {
    const RequestBody body = std::move(http.body);
    return ReadDetokenize(body.text, model);
  };
  MOE_ASSIGN_OR_RETURN(const std::string text, api.runner.Detokenize(read, call.bytes(), [&] { return call.Check(); }));
  return response.SendJson(200, Dump({{"content", text}, {"prompt", text}}));
}

absl::Status HandleApplyTemplate(const HttpApi& api, HttpRequest& http, Response& response) {
  const ClientCall& call = response.call();
  const auto read = [&](const ServedModel& model) -> absl::StatusOr<TokenizeInput> {
    const RequestBody body = std::move(http.body);
    MOE_ASSIGN_OR_RETURN(text::Chat chat, ReadTemplateChat(body.text, model));
    return TokenizeInput{.text = std::move(chat)};
  };
  MOE_ASSIGN_OR_RETURN(const RequestRunner::Tokens tokens,
                       api.runner.Tokenize(read, call.bytes(), [&] { return call.Check(); }));
  // What the model sees: the rendered text, with control tokens spelled out.
  const std::string prompt = tokens.model->text->Decode(tokens.ids, /*keep_special_tokens=*/true);
  return response.SendJson(200, Dump({{"prompt", prompt}}));
}

absl::Status HandleTokenizerInfo(const HttpApi& api, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  const auto token = [](const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); };
  return response.SendJson(200, Dump({{"tokenizer_class", "PreTrainedTokenizerFast"},
                                      {"bos_token", token(model->bos_token)},
                                      {"eos_token", token(model->eos_token)},
                                      {"pad_token", token(model->eos_token)},
                                      {"chat_template", token(model->chat_template)},
                                      {"model_max_length", model->max_context_tokens}}));
}

absl::Status HandleProps(const HttpApi& api, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  const uint32_t most = api.runner.default_max_tokens(*model);
  const OrderedJson defaults{{"n_ctx", model->max_context_tokens},
                             {"params",
                              {{"temperature", model->default_temperature},
                               {"top_p", model->default_top_p},
                               {"top_k", model->default_top_k},
                               {"min_p", model->default_min_p},
                               {"repeat_penalty", model->default_repetition_penalty},
                               {"n_predict", most > 0 ? static_cast<int64_t>(most) : -1}}}};
  return response.SendJson(200, Dump({{"model_alias", model->name},
                                      {"model_path", model->name},
                                      {"default_generation_settings", defaults},
                                      {"has_chat_template", model->text->has_chat_template()},
                                      {"modalities", {{"vision", false}, {"audio", false}}},
                                      {"build_info", "moestro " + ProgramVersion()}}));
}

// Decode has no fixed slots: one for each request that runs, and what they are about is nobody else's business.
absl::Status HandleSlots(const HttpApi& api, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  OrderedJson slots = OrderedJson::array();
  const auto running = static_cast<int64_t>(api.metrics.running.Value());
  for (int64_t i = 0; i < running; ++i) {
    slots.push_back({{"id", i}, {"n_ctx", model->max_context_tokens}, {"is_processing", true}});
  }
  return response.SendJson(200, Dump(slots));
}

absl::Status HandleMetrics(const HttpApi& api, Response& response) {
  return response.Send(200, {{"Content-Type", "text/plain; version=0.0.4"}}, api.registry.Text());
}

}  // namespace moestro::router
