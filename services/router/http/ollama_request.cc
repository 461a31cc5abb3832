#include "services/router/http/ollama_request.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/api.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using text::JsonFields;

// Ollama's options that this server has, by their names in the other APIs. All others are about how Ollama loads a
// model (num_ctx, num_gpu, num_thread) or have no effect in it.
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
};
constexpr const char* kThinkWords[] = {"low", "medium", "high"};

// Fields that change what the model sees or says, and have no counterpart here.
void RefuseOllamaFields(JsonFields& fields) {
  const auto is_set = [&](const char* key) {
    return fields.Has(key) && fields.object()[key] != "" && !fields.object()[key].empty();
  };
  if (is_set("suffix")) fields.Unsupported("suffix", "nothing can be filled in before a text: leave it out");
  if (is_set("template")) fields.Unsupported("template", "a model's template is its own: leave it out");
  if (is_set("context"))
    fields.Unsupported("context", "nothing is kept between requests: send the conversation to /api/chat");
  if (is_set("images")) fields.Unsupported("images", "this model reads and writes text only");
}

// `think` is a switch, or how long a model that knows such words thinks.
void AddThink(JsonFields& fields, OrderedJson& to) {
  if (!fields.Has("think")) return;
  if (!fields.object()["think"].is_string()) {
    const bool thinks = fields.BoolOr("think", true);
    to["chat_template_kwargs"] = {{"enable_thinking", thinks}, {"thinking", thinks}};
    return;
  }
  const std::string word = fields.StringOr("think", "");
  if (std::ranges::find(kThinkWords, word) == std::end(kThinkWords)) {
    return fields.Fail("think", "must be true, false, low, medium or high");
  }
  to["reasoning_effort"] = word;
}

void AddAnswerFormat(JsonFields& fields, const OrderedJson& from, OrderedJson& to) {
  if (!fields.Has("format")) return;
  const OrderedJson& format = from["format"];
  if (format.is_object()) {
    to["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "format"}, {"schema", format}}}};
  } else if (format == "json") {
    to["response_format"] = {{"type", "json_object"}};
  } else if (format != "") {
    fields.Fail("format", "must be \"json\" or a JSON schema");
  }
}

void AddGenerateOptions(JsonFields& fields, const OrderedJson& from, OrderedJson& to) {
  JsonFields options = fields.Sub("options");
  for (const auto& [name, ours] : kOptions) {
    if (options.Has(name)) to[ours] = from["options"][name];
  }
  // -1 and -2: until the model ends, or the context does.
  if (const int64_t most = options.IntOr("num_predict", -1, -2, INT32_MAX); most > 0) to["max_tokens"] = most;
}

// Calls need no ids here, and their arguments are objects.
OrderedJson ChatMessageOf(JsonFields& fields, const OrderedJson& from) {
  OrderedJson to = {{"role", from.value("role", OrderedJson(nullptr))},
                    {"content", from.value("content", OrderedJson(""))}};
  if (fields.Has("images") && !fields.object()["images"].empty()) {
    fields.Unsupported("images", "this model reads and writes text only");
  }
  if (fields.Has("thinking")) to["reasoning_content"] = from["thinking"];
  for (const auto& [name, ours] :
       {std::pair("tool_name", "name"), {"name", "name"}, {"tool_call_id", "tool_call_id"}}) {
    if (fields.Has(name)) to[ours] = from[name];
  }
  size_t i = 0;
  fields.ForEach("tool_calls", [&](JsonFields& call) {
    const JsonFields function = call.Sub("function");
    const OrderedJson& written = from["tool_calls"][i++];
    if (!function.Has("name")) return call.Fail("function", "has no name");
    OrderedJson arguments = written["function"].value("arguments", OrderedJson::object());
    OrderedJson& added = to["tool_calls"].emplace_back(OrderedJson{{"type", "function"}});
    if (call.Has("id")) added["id"] = written["id"];
    added["function"] = {{"name", written["function"]["name"]}, {"arguments", arguments.dump()}};
  });
  return to;
}

OrderedJson ChatMessages(JsonFields& fields, const OrderedJson& from) {
  OrderedJson messages = OrderedJson::array();
  size_t i = 0;
  fields.ForEach("messages",
                 [&](JsonFields& message) { messages.push_back(ChatMessageOf(message, from["messages"][i++])); });
  return messages;
}

OrderedJson PromptMessages(JsonFields& fields) {
  OrderedJson messages = OrderedJson::array();
  const std::string system = fields.StringOr("system", ""), prompt = fields.StringOr("prompt", "");
  if (prompt.empty()) return messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return messages;
}

}  // namespace

absl::StatusOr<OllamaBody> TranslateOllama(OllamaForm form, std::string_view body, size_t max_values) {
  MOE_ASSIGN_OR_RETURN(const json checked, text::ParseJsonObject(body, "the body", max_values));
  MOE_ASSIGN_OR_RETURN(const OrderedJson from, text::ParseOrderedJsonObject(body, "the body"));
  absl::Status status;
  JsonFields fields(checked, "", &status);
  OllamaBody translated{.model = fields.StringOr("model", ""), .stream = fields.BoolOr("stream", true)};
  if (form == OllamaForm::kGenerate) {
    RefuseOllamaFields(fields);
    translated.raw = fields.BoolOr("raw", false);
    translated.prompt = fields.StringOr("prompt", "");
  }
  if (fields.BoolOr("logprobs", false) || fields.IntOr("top_logprobs", 0, 0, INT32_MAX) > 0) {
    fields.Unsupported("logprobs", "answers have none in this API: ask /v1/chat/completions");
  }
  fields.BoolOr("truncate", true);  // a conversation that is too long is an error either way, not a shorter one
  OrderedJson to = OrderedJson::object();
  AddGenerateOptions(fields, from, to);
  AddAnswerFormat(fields, from, to);
  AddThink(fields, to);
  if (fields.Has("tools")) to["tools"] = from["tools"];
  to["messages"] = form == OllamaForm::kChat ? ChatMessages(fields, from) : PromptMessages(fields);
  MOE_RETURN_IF_ERROR(status);
  translated.loads_only = to["messages"].empty();
  translated.chat = to.dump();
  return translated;
}

absl::Status CheckOllamaName(std::string_view name, const ServedModel& model) {
  constexpr std::string_view kTag = ":latest";
  const bool is_tagged = name.size() > kTag.size() && name.ends_with(kTag);
  if (is_tagged && CheckModelName(name.substr(0, name.size() - kTag.size()), model).ok()) return absl::OkStatus();
  return CheckModelName(name, model);
}

absl::StatusOr<OllamaRequest> ReadOllamaRequest(OllamaForm form, std::string_view body, const ServedModel& model,
                                                ConstraintCheck& constraints, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(OllamaBody translated, TranslateOllama(form, body, MostJsonValues(model)));
  MOE_RETURN_IF_ERROR(CheckOllamaName(translated.model, model));
  OllamaRequest request{.chat = {}, .stream = translated.stream, .loads_only = translated.loads_only};
  if (request.loads_only) return request;
  if (!translated.raw) {
    MOE_ASSIGN_OR_RETURN(request.chat, ReadChatRequest(translated.chat, model, constraints, check));
    return request;
  }
  const json parsed = json::parse(translated.chat);
  absl::Status status;
  JsonFields fields(parsed, "", &status);
  GenerateInput input = ReadGenerateFields(fields, translated.chat);
  MOE_RETURN_IF_ERROR(status);
  input.prompt = PlainText{.text = std::move(translated.prompt), .rendered = true};
  request.chat.choices.push_back(std::move(input));
  return request;
}

}  // namespace moestro::router
