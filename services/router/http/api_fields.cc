#include "services/router/http/api_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using enum FieldUse;

constexpr char kTextOnly[] = "this model reads and writes text only";
constexpr char kNotStored[] = "answers are not stored here: send the whole conversation each time";
constexpr char kNoWeb[] = "this server does not search: offer a search of your own in tools";
constexpr char kNoModeration[] = "this server does not judge texts: leave the field out";
constexpr char kNoEditing[] = "conversations are not shortened here: send what the model is to read";

constexpr ApiField kChatFields[] = {
    {"audio", kRefused, "[]", kTextOnly},
    {"frequency_penalty", kHonoured},
    {"function_call", kHonoured},
    {"functions", kHonoured},
    {"logit_bias", kHonoured},
    {"logprobs", kHonoured},
    {"max_completion_tokens", kHonoured},
    {"max_tokens", kHonoured},
    {"messages", kHonoured},
    {"metadata", kNoEffect},
    {"modalities", kRefused, R"(["text"])", kTextOnly},
    {"model", kHonoured},
    {"moderation", kRefused, "[]", kNoModeration},
    {"n", kHonoured},
    {"parallel_tool_calls", kHonoured},
    {"prediction", kNoEffect},  // makes OpenAI's answers faster, not others
    {"presence_penalty", kHonoured},
    {"prompt_cache_key", kNoEffect},
    {"prompt_cache_options", kNoEffect},
    {"prompt_cache_retention", kNoEffect},
    {"reasoning_effort", kHonoured},
    {"response_format", kHonoured},
    {"safety_identifier", kNoEffect},
    {"seed", kHonoured},
    {"service_tier", kNoEffect},
    {"stop", kHonoured},
    {"store", kRefused, "[false]", "nothing is stored here: leave it out, or send false"},
    {"stream", kHonoured},
    {"stream_options", kHonoured},
    {"temperature", kHonoured},
    {"tool_choice", kHonoured},
    {"tools", kHonoured},
    {"top_logprobs", kHonoured},
    {"top_p", kHonoured},
    {"user", kNoEffect},
    {"verbosity", kNoEffect},  // a hint that these models were not trained for
    {"web_search_options", kRefused, "[]", kNoWeb},
};

constexpr ApiField kCompletionsFields[] = {
    {"best_of", kHonoured},
    {"echo", kHonoured},
    {"frequency_penalty", kHonoured},
    {"logit_bias", kHonoured},
    {"logprobs", kHonoured},
    {"max_tokens", kHonoured},
    {"model", kHonoured},
    {"n", kHonoured},
    {"presence_penalty", kHonoured},
    {"prompt", kHonoured},
    {"seed", kHonoured},
    {"stop", kHonoured},
    {"stream", kHonoured},
    {"stream_options", kHonoured},
    {"suffix", kRefused, R"([""])", "put it into the prompt"},
    {"temperature", kHonoured},
    {"top_p", kHonoured},
    {"user", kNoEffect},
};

constexpr ApiField kResponsesFields[] = {
    {"access_programs", kNoEffect},
    {"background", kRefused, "[false]", "an answer ends with its connection: leave it out, or send false"},
    {"background_options", kNoEffect},  // of background
    {"context_management", kRefused, "[]", kNoEditing},
    {"conversation", kRefused, "[]", kNotStored},
    {"image", kNoEffect},  // how images are read; they are refused in input
    // More of the results of tools that are refused, or the reasoning, which is in the answer as it is.
    {"include", kRefused,
     R"(["reasoning.encrypted_content", "web_search_call.action.sources", "web_search_call.results",
         "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
         "message.input_image.image_url"])",
     "POST /v1/chat/completions has log-probabilities"},
    {"input", kHonoured},
    {"instructions", kHonoured},
    {"max_output_tokens", kHonoured},
    {"max_tool_calls", kNoEffect},  // of tools that the server runs; there are none
    {"metadata", kHonoured},
    {"model", kHonoured},
    {"moderation", kRefused, "[]", kNoModeration},
    {"parallel_tool_calls", kHonoured},
    {"previous_response_id", kRefused, "[]", kNotStored},
    {"prompt", kRefused, "[]", "prompts are not stored here: send the text in input"},
    {"prompt_cache_key", kNoEffect},
    {"prompt_cache_options", kNoEffect},
    {"prompt_cache_retention", kNoEffect},
    {"reasoning", kHonoured},
    {"safety_identifier", kNoEffect},
    {"service_tier", kNoEffect},
    {"store", kRefused, "[false]", "nothing is stored here: leave it out, or send false"},
    {"stream", kHonoured},
    {"stream_options", kNoEffect},  // padding of events
    {"temperature", kHonoured},
    {"text", kHonoured},
    {"tool_choice", kHonoured},
    {"tools", kHonoured},
    {"top_logprobs", kRefused, "[0]", "POST /v1/chat/completions has log-probabilities"},
    {"top_p", kHonoured},
    {"truncation", kNoEffect},  // a conversation that is too long is an error, not a shorter one
    {"user", kNoEffect},
};

constexpr ApiField kMessagesFields[] = {
    {"betas", kNoEffect},
    {"billing_policy", kNoEffect},
    {"cache_control", kNoEffect},  // prompts are cached anyway
    {"compaction", kRefused, "[]", kNoEditing},
    {"container", kRefused, "[]", "this server runs no code: offer a tool of your own"},
    {"context_management", kHonoured},
    {"diagnostics", kNoEffect},
    {"fallback_credit_token", kNoEffect},
    {"fallbacks", kNoEffect},  // of a model that declines; one is served
    {"inference_geo", kNoEffect},
    {"max_tokens", kHonoured},
    {"mcp_servers", kRefused, "[]", "this server calls no others: let the client call them, and offer their tools"},
    {"messages", kHonoured},
    {"metadata", kNoEffect},
    {"model", kHonoured},
    {"output_config", kHonoured},
    {"service_tier", kNoEffect},
    {"speed", kNoEffect},
    {"stop_sequences", kHonoured},
    {"stream", kHonoured},
    {"system", kHonoured},
    {"temperature", kHonoured},
    {"thinking", kHonoured},
    {"thread", kRefused, "[]", kNotStored},
    {"tool_choice", kHonoured},
    {"tools", kHonoured},
    {"top_k", kHonoured},
    {"top_p", kHonoured},
    {"user_profile_id", kNoEffect},
    {"workspace_id", kNoEffect},
};

bool AsksForNothing(const json& value, const json& harmless) {
  const auto known = [&](const json& one) { return std::ranges::find(harmless, one) != harmless.end(); };
  return value.is_array() ? std::ranges::all_of(value, known) : known(value);
}

// What the client sent, as it can be told in an error.
std::string Shown(const json& value) { return value.is_primitive() ? text::Describe(value) : "this value"; }

}  // namespace

std::span<const ApiField> FieldsOf(Api api) {
  switch (api) {
    case Api::kChat:
      return kChatFields;
    case Api::kCompletions:
      return kCompletionsFields;
    case Api::kResponses:
      return kResponsesFields;
    case Api::kMessages:
      return kMessagesFields;
  }
  return {};
}

void RefuseFields(Api api, text::JsonFields& fields) {
  for (const ApiField& field : FieldsOf(api)) {
    if (field.use != kRefused || !fields.Has(field.name)) continue;
    const json& value = fields.object()[field.name];
    if (AsksForNothing(value, json::parse(field.harmless))) continue;
    fields.Unsupported(field.name, absl::StrCat(Shown(value), " is not supported: ", field.remedy));
  }
}

}  // namespace moestro::router
