#include "services/router/http/api_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
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
constexpr char kFunctionsOnly[] = "this server runs no tools: offer a function, which the client runs";
constexpr char kSchemaTools[] = "this server runs no tools: offer one with an input_schema, which the client runs";
// Kinds of elements that are read. All others are refused with what they hold.
constexpr char kFunction[] = R"(["function"])";
constexpr char kChoices[] = R"(["function", "allowed_tools"])";
constexpr char kTextBlock[] = R"(["text"])";

constexpr ApiField kChatFields[] = {
    {"audio", kRefused, "[]", kTextOnly},
    {"frequency_penalty", kHonoured},
    {"function_call", kHonoured},
    {"function_call.name", kHonoured},
    {"functions", kHonoured},
    {"functions[].description", kHonoured},
    {"functions[].name", kHonoured},
    {"functions[].parameters", kHonoured},
    {"logit_bias", kHonoured},
    {"logprobs", kHonoured},
    {"max_completion_tokens", kHonoured},
    {"max_tokens", kHonoured},
    {"messages", kHonoured},
    {"messages[].audio", kRefused, "[]", kTextOnly},
    {"messages[].content", kHonoured},
    {"messages[].content[].prompt_cache_breakpoint", kNoEffect},
    {"messages[].content[].refusal", kHonoured},
    {"messages[].content[].text", kHonoured},
    {"messages[].content[].type", kRefused, R"(["text", "refusal", "input_text", "output_text"])", kTextOnly},
    {"messages[].function_call", kHonoured},
    {"messages[].function_call.arguments", kHonoured},
    {"messages[].function_call.name", kHonoured},
    {"messages[].name", kHonoured},
    {"messages[].refusal", kHonoured},
    {"messages[].role", kHonoured},
    {"messages[].tool_call_id", kHonoured},
    {"messages[].tool_calls", kHonoured},
    {"messages[].tool_calls[].function", kHonoured},
    {"messages[].tool_calls[].function.arguments", kHonoured},
    {"messages[].tool_calls[].function.name", kHonoured},
    {"messages[].tool_calls[].id", kHonoured},
    {"messages[].tool_calls[].type", kRefused, kFunction, kFunctionsOnly},
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
    {"response_format.json_schema", kHonoured},
    {"response_format.json_schema.description", kNoEffect},  // the model does not read it
    {"response_format.json_schema.name", kNoEffect},
    {"response_format.json_schema.schema", kHonoured},
    {"response_format.json_schema.strict", kNoEffect},  // the answer is always bound
    {"response_format.type", kHonoured},
    {"safety_identifier", kNoEffect},
    {"seed", kHonoured},
    {"service_tier", kNoEffect},
    {"stop", kHonoured},
    {"store", kRefused, "[false]", "nothing is stored here: leave it out, or send false"},
    {"stream", kHonoured},
    {"stream_options", kHonoured},
    {"stream_options.include_obfuscation", kNoEffect},
    {"stream_options.include_usage", kHonoured},
    {"temperature", kHonoured},
    {"tool_choice", kHonoured},
    {"tool_choice.allowed_tools", kHonoured},
    {"tool_choice.allowed_tools.mode", kHonoured},
    {"tool_choice.allowed_tools.tools", kHonoured},
    {"tool_choice.function", kHonoured},
    {"tool_choice.function.name", kHonoured},
    {"tool_choice.type", kRefused, kChoices, kFunctionsOnly},
    {"tools", kHonoured},
    {"tools[].function", kHonoured},
    {"tools[].function.description", kHonoured},
    {"tools[].function.name", kHonoured},
    {"tools[].function.parameters", kHonoured},
    {"tools[].function.strict", kHonoured},
    {"tools[].type", kRefused, kFunction, kFunctionsOnly},
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
    {"stream_options.include_obfuscation", kNoEffect},
    {"stream_options.include_usage", kHonoured},
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
    {"input[].arguments", kHonoured},
    {"input[].async", kNoEffect},  // how the client ran it
    {"input[].call_id", kHonoured},
    {"input[].caller", kNoEffect},
    {"input[].content", kHonoured},
    {"input[].content[].annotations", kNoEffect},
    {"input[].content[].logprobs", kNoEffect},
    {"input[].content[].prompt_cache_breakpoint", kNoEffect},
    {"input[].content[].refusal", kHonoured},
    {"input[].content[].text", kHonoured},
    {"input[].content[].type", kRefused, R"(["input_text", "output_text", "refusal", "reasoning_text", "text"])",
     kTextOnly},
    {"input[].encrypted_content", kNoEffect},  // the reasoning is in content as it is
    {"input[].id", kNoEffect},
    {"input[].name", kHonoured},
    {"input[].namespace", kNoEffect},
    {"input[].output", kHonoured},
    {"input[].output[].prompt_cache_breakpoint", kNoEffect},
    {"input[].output[].text", kHonoured},
    {"input[].output[].type", kRefused, R"(["input_text", "output_text", "text"])", kTextOnly},
    {"input[].phase", kNoEffect},  // templates have no place for it
    {"input[].role", kHonoured},
    {"input[].status", kNoEffect},
    {"input[].summary", kHonoured},
    {"input[].summary[].text", kHonoured},
    {"input[].summary[].type", kNoEffect},
    {"input[].type", kRefused, R"(["message", "function_call", "function_call_output", "reasoning"])", kFunctionsOnly},
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
    {"reasoning.context", kNoEffect},  // templates decide which of the earlier reasoning a model reads
    {"reasoning.effort", kHonoured},
    {"reasoning.generate_summary", kNoEffect},  // the reasoning is in the answer as it is
    {"reasoning.mode", kNoEffect},
    {"reasoning.summary", kNoEffect},
    {"safety_identifier", kNoEffect},
    {"service_tier", kNoEffect},
    {"store", kRefused, "[false]", "nothing is stored here: leave it out, or send false"},
    {"stream", kHonoured},
    {"stream_options", kNoEffect},  // padding of events
    {"temperature", kHonoured},
    {"text", kHonoured},
    {"text.format", kHonoured},
    {"text.format.description", kNoEffect},  // as in chats
    {"text.format.name", kNoEffect},
    {"text.format.schema", kHonoured},
    {"text.format.strict", kNoEffect},
    {"text.format.type", kHonoured},
    {"text.verbosity", kNoEffect},
    {"tool_choice", kHonoured},
    {"tool_choice.mode", kHonoured},
    {"tool_choice.name", kHonoured},
    {"tool_choice.tools", kHonoured},
    {"tool_choice.type", kRefused, kChoices, kFunctionsOnly},
    {"tools", kHonoured},
    {"tools[].allowed_callers", kNoEffect},  // of programs that the server runs
    {"tools[].async", kNoEffect},
    {"tools[].defer_loading", kNoEffect},  // the model knows all tools at once
    {"tools[].description", kHonoured},
    {"tools[].name", kHonoured},
    {"tools[].output_schema", kNoEffect},  // templates have no place for it
    {"tools[].parameters", kHonoured},
    {"tools[].strict", kHonoured},
    {"tools[].type", kRefused, kFunction, kFunctionsOnly},
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
    // Templates decide which of the earlier thoughts a model reads.
    {"context_management.edits", kHonoured},
    {"context_management.edits[].keep", kNoEffect},
    {"context_management.edits[].type", kRefused, R"(["clear_thinking_20251015"])", kNoEditing},
    {"diagnostics", kNoEffect},
    {"fallback_credit_token", kNoEffect},
    {"fallbacks", kNoEffect},  // of a model that declines; one is served
    {"inference_geo", kNoEffect},
    {"max_tokens", kHonoured},
    {"mcp_servers", kRefused, "[]", "this server calls no others: let the client call them, and offer their tools"},
    {"messages", kHonoured},
    {"messages[].clear_at", kNoEffect},  // when Anthropic shortens a conversation
    {"messages[].content", kHonoured},
    {"messages[].content[].cache_control", kNoEffect},
    {"messages[].content[].caller", kNoEffect},
    {"messages[].content[].citations", kNoEffect},
    {"messages[].content[].content", kHonoured},
    {"messages[].content[].content[].cache_control", kNoEffect},
    {"messages[].content[].content[].citations", kNoEffect},
    {"messages[].content[].content[].text", kHonoured},
    {"messages[].content[].content[].type", kRefused, kTextBlock, kTextOnly},
    {"messages[].content[].data", kNoEffect},  // thoughts that only Anthropic can read
    {"messages[].content[].id", kHonoured},
    {"messages[].content[].input", kHonoured},
    {"messages[].content[].is_error", kNoEffect},  // templates have no place for it: the content says it
    {"messages[].content[].name", kHonoured},
    {"messages[].content[].signature", kNoEffect},
    {"messages[].content[].text", kHonoured},
    {"messages[].content[].thinking", kHonoured},
    {"messages[].content[].tool_use_id", kHonoured},
    {"messages[].content[].toolset_name", kNoEffect},
    {"messages[].content[].type", kRefused, R"(["text", "thinking", "redacted_thinking", "tool_use", "tool_result"])",
     kTextOnly},
    {"messages[].output_config", kNoEffect},  // of the request counts
    {"messages[].role", kHonoured},
    {"metadata", kNoEffect},
    {"model", kHonoured},
    {"output_config", kHonoured},
    {"output_config.effort", kHonoured},
    {"output_config.format", kHonoured},
    {"output_config.format.schema", kHonoured},
    {"output_config.format.type", kHonoured},
    {"output_config.task_budget", kNoEffect},  // a hint
    {"service_tier", kNoEffect},
    {"speed", kNoEffect},
    {"stop_sequences", kHonoured},
    {"stream", kHonoured},
    {"system", kHonoured},
    {"system[].cache_control", kNoEffect},
    {"system[].citations", kNoEffect},
    {"system[].text", kHonoured},
    {"system[].type", kRefused, kTextBlock, kTextOnly},
    {"temperature", kHonoured},
    {"thinking", kHonoured},
    {"thinking.block_binding", kNoEffect},
    {"thinking.budget_tokens", kNoEffect},  // a hint: models here think as long as they want
    {"thinking.display", kHonoured},
    {"thinking.type", kHonoured},
    {"thread", kRefused, "[]", kNotStored},
    {"tool_choice", kHonoured},
    {"tool_choice.disable_parallel_tool_use", kHonoured},
    {"tool_choice.name", kHonoured},
    {"tool_choice.type", kHonoured},
    {"tools", kHonoured},
    {"tools[].allowed_callers", kNoEffect},  // of programs that the server runs
    {"tools[].cache_control", kNoEffect},
    {"tools[].defer_loading", kNoEffect},  // the model knows all tools at once
    {"tools[].description", kHonoured},
    {"tools[].eager_input_streaming", kNoEffect},
    {"tools[].input_examples", kNoEffect},  // templates have no place for them
    {"tools[].input_schema", kHonoured},
    {"tools[].name", kHonoured},
    {"tools[].strict", kHonoured},
    {"tools[].type", kRefused, R"(["custom"])", kSchemaTools},
    {"top_k", kHonoured},
    {"top_p", kHonoured},
    {"user_profile_id", kNoEffect},
    {"workspace_id", kNoEffect},
};

bool AsksForNothing(const json& value, const json& harmless) {
  const auto known = [&](const json& one) { return std::ranges::find(harmless, one) != harmless.end(); };
  return value.is_array() ? std::ranges::all_of(value, known) : known(value);
}

// Calls `check` with the owner and the name of each field at `path`. What a path cannot enter is for its reader.
void AtPath(text::JsonFields& owner, std::string_view path,
            absl::FunctionRef<void(text::JsonFields&, const char*)> check) {
  const size_t end = path.find('.');
  std::string name(path.substr(0, end));
  const bool is_list = name.ends_with("[]");
  if (is_list) name.resize(name.size() - 2);
  if (!owner.Has(name.c_str())) return;
  if (end == std::string_view::npos) return check(owner, name.c_str());
  const auto enter = [&](text::JsonFields& inner) { AtPath(inner, path.substr(end + 1), check); };
  const json& value = owner.object()[name];
  if (is_list && value.is_array()) owner.ForEach(name.c_str(), enter);
  if (is_list || !value.is_object()) return;
  text::JsonFields inner = owner.Sub(name.c_str());
  enter(inner);
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
    if (field.use != kRefused) continue;
    const json harmless = json::parse(field.harmless);
    AtPath(fields, field.path, [&](text::JsonFields& owner, const char* name) {
      const json& value = owner.object()[name];
      if (AsksForNothing(value, harmless)) return;
      owner.Unsupported(name, absl::StrCat(Shown(value), " is not supported: ", field.remedy));
    });
  }
}

}  // namespace moestro::router
