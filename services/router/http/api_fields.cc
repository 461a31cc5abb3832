#include "services/router/http/api_fields.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using enum FieldUse;

constexpr char kTextOnly[] = "this model reads and writes text only";
constexpr char kTextInline[] = "files are not fetched or kept here: send the text itself";
constexpr char kNotStored[] = "answers are not stored here: send the whole conversation each time";
constexpr char kNoWeb[] = "this server does not search: offer a search of your own in tools";
constexpr char kNoModeration[] = "this server does not judge texts: leave the field out";
constexpr char kNoEditing[] = "conversations are not shortened here: send what the model is to read";
constexpr char kBindOtherwise[] = "bind the answer with response_format, grammar or regex";
constexpr char kRankAnswers[] = "ask for n answers with logprobs, and take the best";
constexpr char kScoreOrTokenize[] =
    "POST /v1/completions with echo and logprobs scores a prompt, POST /tokenize has ids";
constexpr char kSamplers[] = "tokens are drawn by temperature, top_k, top_p, min_p and the penalties: leave it out";
constexpr char kFunctionsOnly[] = "this server runs no tools: offer a function, which the client runs";
constexpr char kSchemaTools[] = "this server runs no tools: offer one with an input_schema, which the client runs";
// Kinds of elements that are read. All others are refused with what they hold.
constexpr char kFunction[] = R"(["function"])";
constexpr char kToolItems[] = R"(["function", "custom", "namespace"])";
constexpr char kToolsOfNamespace[] = R"(["function", "custom"])";
constexpr char kChoices[] = R"(["function", "allowed_tools", "auto", "none", "required", "any", "tool"])";
constexpr char kToolChoices[] = R"(["function", "custom", "allowed_tools", "auto", "none", "required", "any", "tool"])";
constexpr char kTextBlock[] = R"(["text"])";
constexpr char kOff[] = "[false, 0]";
// Offers that a model need not take up: clients send tools which others run beside their own.
constexpr char kAnyOther[] = R"(["*"])";
// What others' tools have left in a conversation. The assistant's words about it are there, too.
constexpr char kItemsOfOthers[] =
    R"(["additional_tools", "code_interpreter_call", "compaction_trigger", "computer_call", "computer_call_output",
        "configuration_update", "file_search_call", "image_generation_call", "mcp_approval_request",
        "mcp_approval_response", "mcp_list_tools", "program", "program_output", "tool_search_call",
        "tool_search_output", "web_search_call"])";
constexpr char kBlocksOfOthers[] =
    R"(["advisor_tool_result", "bash_code_execution_tool_result", "code_execution_tool_result", "fallback",
        "mcp_tool_listing", "server_tool_use", "text_editor_code_execution_tool_result", "tool_search_tool_result",
        "web_fetch_tool_result", "web_search_tool_result"])";

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
    {"messages[].content[].file", kHonoured},
    {"messages[].content[].file.file_data", kHonoured},
    {"messages[].content[].file.file_id", kRefused, "[]", kTextInline},
    {"messages[].content[].file.filename", kHonoured},
    {"messages[].content[].prompt_cache_breakpoint", kNoEffect},
    {"messages[].content[].refusal", kHonoured},
    {"messages[].content[].text", kHonoured},
    {"messages[].content[].type", kRefused,
     R"(["text", "refusal", "input_text", "output_text", "file", "thinking", "redacted_thinking", "reasoning"])",
     kTextOnly},
    {"messages[].function_call", kHonoured},
    {"messages[].function_call.arguments", kHonoured},
    {"messages[].function_call.name", kHonoured},
    {"messages[].name", kHonoured},
    {"messages[].refusal", kHonoured},
    {"messages[].role", kHonoured},
    {"messages[].tool_call_id", kHonoured},
    {"messages[].tool_calls", kHonoured},
    {"messages[].tool_calls[].custom", kHonoured},
    {"messages[].tool_calls[].custom.input", kHonoured},
    {"messages[].tool_calls[].custom.name", kHonoured},
    {"messages[].tool_calls[].function", kHonoured},
    {"messages[].tool_calls[].function.arguments", kHonoured},
    {"messages[].tool_calls[].function.name", kHonoured},
    {"messages[].tool_calls[].id", kHonoured},
    {"messages[].tool_calls[].type", kRefused, R"(["function", "custom"])", kFunctionsOnly},
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
    {"store", kNoEffect},  // nothing is stored; what asks for something that is stored is refused
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
    {"tools[].type", kLeftOut, kAnyOther},
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
    {"input[].action", kHonoured},
    {"input[].approval_request_id", kNoEffect},
    {"input[].arguments", kHonoured},
    {"input[].async", kNoEffect},  // how the client ran it
    {"input[].call_id", kHonoured},
    {"input[].caller", kNoEffect},
    {"input[].content", kHonoured},
    {"input[].content[].annotations", kNoEffect},
    {"input[].content[].detail", kNoEffect},
    {"input[].content[].file_data", kHonoured},
    {"input[].content[].file_id", kRefused, "[]", kTextInline},
    {"input[].content[].file_url", kRefused, "[]", kTextInline},
    {"input[].content[].filename", kHonoured},
    {"input[].content[].logprobs", kNoEffect},
    {"input[].content[].prompt_cache_breakpoint", kNoEffect},
    {"input[].content[].refusal", kHonoured},
    {"input[].content[].text", kHonoured},
    {"input[].content[].type", kRefused,
     R"(["input_text", "output_text", "refusal", "reasoning_text", "text", "input_file", "thinking",
         "redacted_thinking", "reasoning"])",
     kTextOnly},
    {"input[].encrypted_content", kNoEffect},  // the reasoning is in content as it is
    {"input[].environment", kNoEffect},
    {"input[].error", kNoEffect},  // what it wrote says it
    {"input[].id", kNoEffect},
    {"input[].input", kHonoured},
    {"input[].max_output_length", kNoEffect},  // how the client ran it
    {"input[].name", kHonoured},
    {"input[].namespace", kHonoured},
    {"input[].operation", kHonoured},
    {"input[].output", kHonoured},
    {"input[].output[].detail", kNoEffect},
    {"input[].output[].file_data", kHonoured},
    {"input[].output[].file_id", kRefused, "[]", kTextInline},
    {"input[].output[].file_url", kRefused, "[]", kTextInline},
    {"input[].output[].filename", kHonoured},
    {"input[].output[].outcome", kNoEffect},
    {"input[].output[].prompt_cache_breakpoint", kNoEffect},
    {"input[].output[].stderr", kHonoured},
    {"input[].output[].stdout", kHonoured},
    {"input[].output[].text", kHonoured},
    {"input[].output[].type", kRefused, R"(["input_text", "output_text", "text", "input_file"])", kTextOnly},
    {"input[].phase", kNoEffect},  // templates have no place for it
    {"input[].role", kHonoured},
    {"input[].server_label", kNoEffect},
    {"input[].status", kNoEffect},
    {"input[].summary", kHonoured},
    {"input[].summary[].text", kHonoured},
    {"input[].summary[].type", kNoEffect},
    {"input[].type", kRefused,
     R"(["message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output",
         "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call",
         "apply_patch_call_output", "mcp_call"])",
     kNotStored},
    {"input[].type", kLeftOut, kItemsOfOthers},
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
    {"store", kNoEffect},  // as in chats
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
    {"tool_choice.type", kRefused, kToolChoices, kFunctionsOnly},
    {"tools", kHonoured},
    {"tools[].allowed_callers", kNoEffect},  // of programs that the server runs
    {"tools[].async", kNoEffect},
    {"tools[].defer_loading", kHonoured},
    {"tools[].description", kHonoured},
    {"tools[].format", kHonoured},
    {"tools[].format.definition", kHonoured},
    {"tools[].format.syntax", kHonoured},
    {"tools[].format.type", kHonoured},
    {"tools[].name", kHonoured},
    {"tools[].output_schema", kNoEffect},  // templates have no place for it
    {"tools[].parameters", kHonoured},
    {"tools[].strict", kHonoured},
    {"tools[].tools", kHonoured},
    {"tools[].tools[].allowed_callers", kNoEffect},
    {"tools[].tools[].async", kNoEffect},
    {"tools[].tools[].defer_loading", kHonoured},
    {"tools[].tools[].description", kHonoured},
    {"tools[].tools[].format", kHonoured},
    {"tools[].tools[].format.definition", kHonoured},
    {"tools[].tools[].format.syntax", kHonoured},
    {"tools[].tools[].format.type", kHonoured},
    {"tools[].tools[].name", kHonoured},
    {"tools[].tools[].output_schema", kNoEffect},
    {"tools[].tools[].parameters", kHonoured},
    {"tools[].tools[].strict", kHonoured},
    {"tools[].tools[].type", kRefused, kToolsOfNamespace, kFunctionsOnly},
    {"tools[].tools[].type", kLeftOut, kAnyOther},
    {"tools[].type", kRefused, kToolItems, kFunctionsOnly},
    {"tools[].type", kLeftOut, kAnyOther},
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
    {"messages[].content[].content[].context", kHonoured},
    {"messages[].content[].content[].content", kHonoured},
    {"messages[].content[].content[].content[].cache_control", kNoEffect},
    {"messages[].content[].content[].content[].citations", kNoEffect},
    {"messages[].content[].content[].content[].text", kHonoured},
    {"messages[].content[].content[].content[].type", kRefused, kTextBlock, kTextOnly},
    {"messages[].content[].content[].source", kHonoured},
    {"messages[].content[].content[].source.content", kHonoured},
    {"messages[].content[].content[].source.content[].cache_control", kNoEffect},
    {"messages[].content[].content[].source.content[].citations", kNoEffect},
    {"messages[].content[].content[].source.content[].text", kHonoured},
    {"messages[].content[].content[].source.content[].type", kRefused, kTextBlock, kTextOnly},
    {"messages[].content[].content[].source.data", kHonoured},
    {"messages[].content[].content[].source.media_type", kNoEffect},  // the data say what they are
    {"messages[].content[].content[].source.type", kRefused, R"(["text", "content", "base64"])", kTextInline},
    {"messages[].content[].content[].title", kHonoured},
    {"messages[].content[].content[].tool_name", kHonoured},
    {"messages[].content[].content[].type", kRefused, R"(["text", "document", "search_result", "tool_reference"])",
     kTextOnly},
    {"messages[].content[].context", kHonoured},
    {"messages[].content[].data", kNoEffect},  // thoughts that only Anthropic can read
    {"messages[].content[].id", kHonoured},
    {"messages[].content[].input", kHonoured},
    {"messages[].content[].is_error", kNoEffect},  // templates have no place for it: the content says it
    {"messages[].content[].name", kHonoured},
    {"messages[].content[].server_name", kNoEffect},
    {"messages[].content[].signature", kNoEffect},
    {"messages[].content[].source", kHonoured},
    {"messages[].content[].source.content", kHonoured},
    {"messages[].content[].source.content[].cache_control", kNoEffect},
    {"messages[].content[].source.content[].citations", kNoEffect},
    {"messages[].content[].source.content[].text", kHonoured},
    {"messages[].content[].source.content[].type", kRefused, kTextBlock, kTextOnly},
    {"messages[].content[].source.data", kHonoured},
    {"messages[].content[].source.media_type", kNoEffect},  // the data say what they are
    {"messages[].content[].source.type", kRefused, R"(["text", "content", "base64"])", kTextInline},
    {"messages[].content[].text", kHonoured},
    {"messages[].content[].thinking", kHonoured},
    {"messages[].content[].tool_use_id", kHonoured},
    {"messages[].content[].toolset_name", kNoEffect},
    {"messages[].content[].title", kHonoured},
    {"messages[].content[].type", kRefused,
     R"(["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "document", "search_result",
         "mcp_tool_use", "mcp_tool_result"])",
     kTextOnly},
    {"messages[].content[].type", kLeftOut, kBlocksOfOthers},
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
    {"tools[].defer_loading", kHonoured},
    {"tools[].description", kHonoured},
    {"tools[].eager_input_streaming", kNoEffect},
    {"tools[].input_examples", kNoEffect},  // templates have no place for them
    {"tools[].input_schema", kHonoured},
    {"tools[].name", kHonoured},
    {"tools[].strict", kHonoured},
    {"tools[].type", kRefused, R"(["custom", "function"])", kSchemaTools},
    {"tools[].type", kLeftOut, kAnyOther},
    {"top_k", kHonoured},
    {"top_p", kHonoured},
    {"user_profile_id", kNoEffect},
    {"workspace_id", kNoEffect},
};

// Of vLLM, SGLang, llama-server and others: what they would do and this server does not. Those that are honoured here
// are in the README.
constexpr ApiField kFieldsOfOtherServers[] = {
    {"allowed_token_ids", kRefused, "[]", kBindOtherwise},
    {"bad_words", kRefused, "[]", kBindOtherwise},
    {"best_of", kRefused, "[1]", kRankAnswers},
    {"chat_template", kRefused, "[]", "chats have the model's own: render yours, and send the text to /v1/completions"},
    {"custom_logit_processor", kRefused, "[]", kSamplers},
    {"disable_additional_properties", kRefused, kOff, kBindOtherwise},
    {"disable_any_whitespace", kRefused, kOff, kBindOtherwise},
    {"documents", kRefused, "[]", "put their texts into the messages"},
    {"dry_multiplier", kRefused, kOff, kSamplers},
    {"dynatemp_range", kRefused, kOff, kSamplers},
    {"echo", kRefused, kOff, "POST /v1/completions has it"},
    {"grammar_lazy", kRefused, kOff, kBindOtherwise},
    {"guided_decoding.disable_additional_properties", kRefused, kOff, kBindOtherwise},
    {"guided_decoding.disable_any_whitespace", kRefused, kOff, kBindOtherwise},
    {"guided_decoding.structural_tag", kRefused, "[]", kBindOtherwise},
    {"guided_decoding.whitespace_pattern", kRefused, "[]", kBindOtherwise},
    {"guided_whitespace_pattern", kRefused, "[]", kBindOtherwise},
    {"logits_processors", kRefused, "[]", kSamplers},
    {"lora_path", kRefused, "[]", "one model is served, without adapters: leave it out"},
    {"mirostat", kRefused, kOff, kSamplers},
    {"mirostat_mode", kRefused, kOff, kSamplers},
    {"no_repeat_ngram_size", kRefused, kOff, kSamplers},
    {"prompt_logprobs", kRefused, "[false]", kScoreOrTokenize},
    {"return_hidden_states", kRefused, kOff, "answers have texts and log-probabilities: leave it out"},
    {"return_token_ids", kRefused, kOff, kScoreOrTokenize},
    {"return_tokens_as_token_ids", kRefused, kOff, kScoreOrTokenize},
    {"separate_reasoning", kRefused, "[true]", "reasoning has a field of its own: leave it out"},
    {"stop_regex", kRefused, "[]", "send the texts themselves in stop"},
    {"structural_tag", kRefused, "[]", kBindOtherwise},
    {"structured_outputs.disable_additional_properties", kRefused, kOff, kBindOtherwise},
    {"structured_outputs.disable_any_whitespace", kRefused, kOff, kBindOtherwise},
    {"structured_outputs.structural_tag", kRefused, "[]", kBindOtherwise},
    {"structured_outputs.whitespace_pattern", kRefused, "[]", kBindOtherwise},
    {"tfs_z", kRefused, "[1]", kSamplers},
    {"top_a", kRefused, kOff, kSamplers},
    {"top_n_sigma", kRefused, "[-1, 0]", kSamplers},
    {"truncate_prompt_tokens", kRefused, "[]", kNoEditing},
    {"typical_p", kRefused, "[1]", kSamplers},
    {"typ_p", kRefused, "[1]", kSamplers},
    {"use_beam_search", kRefused, kOff, kRankAnswers},
    {"whitespace_pattern", kRefused, "[]", kBindOtherwise},
    {"xtc_probability", kRefused, kOff, kSamplers},
};

bool AsksForNothing(const json& value, const json& harmless) {
  const auto known = [&](const json& one) { return one == "" || std::ranges::find(harmless, one) != harmless.end(); };
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

std::span<const ApiField> FieldsOfOtherServers() { return kFieldsOfOtherServers; }

bool IsLeftOut(Api api, std::string_view path, const std::string& type) {
  struct Kinds {
    std::set<std::string> read, left_out;
  };
  // Parsed once: a request may have very many elements.
  static const auto* const kKinds = [] {
    auto* kinds = new std::map<std::pair<Api, std::string_view>, Kinds>;
    for (const Api each : {Api::kChat, Api::kCompletions, Api::kResponses, Api::kMessages}) {
      for (const ApiField& field : FieldsOf(each)) {
        if (field.use != kRefused && field.use != kLeftOut) continue;
        Kinds& of_path = (*kinds)[{each, field.path}];
        for (const json& value : json::parse(field.harmless)) {
          if (value.is_string()) (field.use == kRefused ? of_path.read : of_path.left_out).insert(value);
        }
      }
    }
    return kinds;
  }();
  const auto found = kKinds->find({api, path});
  if (found == kKinds->end() || type.empty() || found->second.read.contains(type)) return false;
  return found->second.left_out.contains(type) || found->second.left_out.contains("*");
}

void RefuseFields(Api api, text::JsonFields& fields) {
  // Of others' fields those that the API itself has, too, are its own.
  const auto refuse = [&](const ApiField& field, std::span<const ApiField> own) {
    json harmless;  // parsed where a request has the field
    AtPath(fields, field.path, [&](text::JsonFields& owner, const char* name) {
      if (harmless.is_null()) harmless = json::parse(field.harmless);
      const json& value = owner.object()[name];
      if (AsksForNothing(value, harmless)) return;
      if (value.is_string() && IsLeftOut(api, field.path, value.get_ref<const std::string&>())) return;
      if (std::ranges::find(own, std::string_view(field.path), &ApiField::path) != own.end()) return;
      owner.Unsupported(name, absl::StrCat(Shown(value), " is not supported: ", field.remedy));
    });
  };
  for (const ApiField& field : FieldsOf(api)) {
    if (field.use == kRefused) refuse(field, {});
  }
  for (const ApiField& field : kFieldsOfOtherServers) refuse(field, FieldsOf(api));
}

}  // namespace moestro::router
