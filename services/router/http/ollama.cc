#include "services/router/http/ollama.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/errors.h"
#include "services/router/http/ollama_answer.h"

namespace moestro::router {
namespace {

// Programs ask for a version before they use what came with it. That of the API as it is here.
constexpr char kOllamaVersion[] = "0.13.0";

absl::Status AnswerOllama(OllamaForm form, const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  const CancelCheck check = [&] { return call.Check(); };
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  const auto read = [&](const ServedModel& served, ConstraintCheck& constraints) {
    return ReadOllamaRequest(form, http.body.text, served, constraints, check);
  };
  MOE_ASSIGN_OR_RETURN(const OllamaRequest request, api.runner.ReadInTurn<OllamaRequest>(read, call.bytes(), check));
  http.body = {};
  if (request.loads_only) {
    OrderedJson loaded = OllamaLine(form, *model, {});
    loaded["done"] = true;
    loaded["done_reason"] = "load";
    return response.SendJson(200, Dump(loaded));
  }
  const std::string id = "ollama-" + api.runner.NewRequestId();
  const std::unique_ptr<ChatAnswer> answer = NewOllamaAnswer(form, request, model, id, response);
  MOE_RETURN_IF_ERROR(RunChoices(api, response, id, request.chat.choices, *answer));
  return answer->Finish();
}

// A stream that has begun ends with a line for the error.
absl::Status RunOllama(OllamaForm form, const HttpApi& api, HttpRequest& http, Response& response) {
  absl::Status status = AnswerOllama(form, api, http, response);
  if (!status.ok() && response.begun()) {
    response.Write(ErrorAt(http.head.path, status).body + "\n").IgnoreError();
  }
  return status;
}

// What is known of a published model without its files: nothing of its parameters or types of weights.
OrderedJson Details(const ServedModel& model) {
  return {{"parent_model", ""},     {"format", ""},
          {"family", model.family}, {"families", OrderedJson::array({model.family})},
          {"parameter_size", ""},   {"quantization_level", ""}};
}

OrderedJson ModelEntry(const ServedModel& model, const std::string& name) {
  return {{"name", name},
          {"model", name},
          {"modified_at", OllamaTime(absl::FromUnixSeconds(model.created_seconds))},
          {"size", model.segment_bytes},
          {"digest", model.fingerprint},
          {"details", Details(model)}};
}

OrderedJson Capabilities(const ServedModel& model) {
  OrderedJson capabilities = OrderedJson::array({"completion"});
  const OutputFormat& format = model.text->output_format();
  if (format.calls != CallSyntax::kNone) capabilities.push_back("tools");
  if (format.thinks || format.calls == CallSyntax::kHarmony) capabilities.push_back("thinking");
  return capabilities;
}

}  // namespace

absl::Status HandleOllamaShow(const HttpApi& api, HttpRequest& http, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseRequest(http.body.text, *model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  const std::string name = fields.StringOr(fields.Has("model") ? "model" : "name", "");
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckOllamaName(name, *model));
  return response.SendJson(200,
                           Dump({{"modelfile", ""},
                                 {"parameters", absl::StrCat("temperature ", model->default_temperature, "\ntop_p ",
                                                             model->default_top_p, "\ntop_k ", model->default_top_k)},
                                 {"template", model->chat_template},
                                 {"details", Details(*model)},
                                 {"model_info",
                                  {{"general.architecture", model->family},
                                   {absl::StrCat(model->family, ".context_length"), model->max_context_tokens},
                                   {absl::StrCat(model->family, ".vocab_size"), model->vocab_size}}},
                                 {"capabilities", Capabilities(*model)},
                                 {"modified_at", OllamaTime(absl::FromUnixSeconds(model->created_seconds))}}));
}

absl::Status HandleOllamaChat(const HttpApi& api, HttpRequest& request, Response& response) {
  return RunOllama(OllamaForm::kChat, api, request, response);
}

absl::Status HandleOllamaGenerate(const HttpApi& api, HttpRequest& request, Response& response) {
  return RunOllama(OllamaForm::kGenerate, api, request, response);
}

absl::Status HandleOllamaTags(const HttpApi& api, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  OrderedJson models = OrderedJson::array();
  for (const std::string& name : NamesOf(*model)) models.push_back(ModelEntry(*model, name));
  return response.SendJson(200, Dump({{"models", std::move(models)}}));
}

absl::Status HandleOllamaPs(const HttpApi& api, Response& response) {
  OrderedJson models = OrderedJson::array();
  if (const absl::StatusOr<ModelBoard::ModelPtr> model = api.board.Ready(); model.ok()) {
    OrderedJson entry = ModelEntry(**model, (*model)->name);
    entry.erase("modified_at");
    entry["expires_at"] = OllamaTime(absl::Now() + absl::Hours(24 * 365));  // it stays
    entry["size_vram"] = 0;
    entry["context_length"] = (*model)->max_context_tokens;
    models.push_back(std::move(entry));
  }
  return response.SendJson(200, Dump({{"models", std::move(models)}}));
}

absl::Status HandleOllamaVersion(Response& response) {
  return response.SendJson(200, Dump({{"version", kOllamaVersion}}));
}

}  // namespace moestro::router
