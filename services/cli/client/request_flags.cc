#include "services/cli/client/request_flags.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/text/utf8.h"
#include "moestro/v1/inference.pb.h"

namespace moestro::cli {

void AddSamplingFlags(FlagSet& command, SamplingFlags& flags) {
  command.Add("--max-tokens", flags.max_tokens, "Most tokens to generate; 0: the server's default");
  command.Add("--temperature", flags.temperature, "0: greedy; default: the model's own");
  command.Add("--top-p", flags.top_p, "Smallest set of most likely tokens of this probability; 1: off");
  command.Add("--top-k", flags.top_k, "Only this many most likely tokens; 0: off");
  command.Add("--seed", flags.seed, "The same request with the same seed gives the same tokens");
  command
      .Add("--stop-id", flags.stop_ids,
           "Token id that ends the answer, in addition to the model's own; may be repeated")
      .Delimiter(',');
  command.Add("--stop", flags.stop, "Text that ends the answer and is not part of it; may be repeated");
  command.Add("--min-p", flags.min_p, "Drop tokens less likely than this times the most likely one; 0: off");
  command.Add("--presence-penalty", flags.presence_penalty,
              "Subtracted from the logit of every token generated so far; 0: off");
  command.Add("--frequency-penalty", flags.frequency_penalty,
              "The same for each time that the token was generated; 0: off");
  command.Add("--repetition-penalty", flags.repetition_penalty,
              "Above 1: makes tokens of the prompt and of the answer so far less likely; 1: off");
  command.Add("--logit-bias", flags.logit_bias, "ID=BIAS, added to a token's logit: -100 to 100; may be repeated");
  command.Add("--top-logprobs", flags.top_logprobs, "Alternatives of each token in the output of --json, up to 20");
  command.AddSwitch("--keep-special-tokens", flags.keep_special_tokens, "Spell out special tokens in the text");
  FlagSet constraint = command.AddGroup("constraint", "At most one of");
  constraint.AddSwitch("--json-object", flags.json_object, "The answer is a JSON object");
  constraint.Add("--json-schema", flags.json_schema_file, "File with a JSON schema; the answer is valid for it");
  constraint.Add("--grammar", flags.grammar_file, "File with a grammar (GBNF) of the answer");
  constraint.Add("--regex", flags.regex, "Regular expression that matches the whole answer");
  constraint.RequireFlags(0, 1);
  command.AddSwitch("--ignore-eos", flags.ignore_eos, "Continue past the model's own stop ids");
  command.Add("--cache-scope", flags.cache_scope,
              "Share cached prefixes with requests of this scope only; default: the shared scope");
}

namespace {

absl::Status ApplyConstraint(const SamplingFlags& flags, v1::GenerateRequest& request) {
  const auto set = [&](const char* flag, v1::Constraint::Kind kind, std::string text) -> absl::Status {
    request.mutable_constraint()->set_kind(kind);
    MOE_RETURN_IF_ERROR(CheckUtf8(flag, text));
    request.mutable_constraint()->set_text(std::move(text));
    return absl::OkStatus();
  };
  const auto set_file = [&](const char* flag, v1::Constraint::Kind kind, const std::string& file) -> absl::Status {
    absl::StatusOr<std::string> text = ReadFile(file);
    MOE_RETURN_IF_ERROR(text);
    return set(absl::StrCat(flag, " ", file).c_str(), kind, *std::move(text));
  };
  if (flags.json_object) return set("--json-object", v1::Constraint::KIND_JSON_OBJECT, "");
  if (!flags.json_schema_file.empty()) {
    return set_file("--json-schema", v1::Constraint::KIND_JSON_SCHEMA, flags.json_schema_file);
  }
  if (!flags.grammar_file.empty()) return set_file("--grammar", v1::Constraint::KIND_GRAMMAR, flags.grammar_file);
  if (!flags.regex.empty()) return set("--regex", v1::Constraint::KIND_REGEX, flags.regex);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplySamplingFlags(const SamplingFlags& flags, v1::GenerateRequest& request) {
  request.set_max_tokens(flags.max_tokens);
  if (flags.temperature) request.set_temperature(*flags.temperature);
  if (flags.top_p) request.set_top_p(*flags.top_p);
  if (flags.top_k) request.set_top_k(*flags.top_k);
  if (flags.seed) request.set_seed(*flags.seed);
  request.mutable_stop_ids()->Add(flags.stop_ids.begin(), flags.stop_ids.end());
  request.set_ignore_eos(flags.ignore_eos);
  request.set_cache_scope(flags.cache_scope);
  for (const std::string& text : flags.stop) {
    MOE_RETURN_IF_ERROR(CheckUtf8("--stop", text));
    request.add_stop(text);
  }
  if (flags.min_p) request.set_min_p(*flags.min_p);
  if (flags.presence_penalty) request.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) request.set_frequency_penalty(*flags.frequency_penalty);
  if (flags.repetition_penalty) request.set_repetition_penalty(*flags.repetition_penalty);
  for (const std::string& flag : flags.logit_bias) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(flag, absl::MaxSplits('=', 1));
    int32_t id = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(absl::StrCat("--logit-bias ", flag, ": must be ID=BIAS, such as 42=-100"));
    }
    (*request.mutable_logit_bias())[id] = bias;
  }
  request.set_top_logprobs(flags.top_logprobs);
  request.set_keep_special_tokens(flags.keep_special_tokens);
  return ApplyConstraint(flags, request);
}

void AddWayFlag(FlagSet& command, std::string& way, const std::vector<std::string>& ways) {
  command.Add("--way", way, "What computes the prompt, or an error; default: the router's choice").OneOf(ways);
}

v1::PromptWay WayOf(const std::string& way) {
  if (way == "chunked") return v1::PROMPT_WAY_CHUNKED;
  if (way == "in_place") return v1::PROMPT_WAY_IN_PLACE;
  return way == "streamed" ? v1::PROMPT_WAY_STREAMED : v1::PROMPT_WAY_UNSPECIFIED;
}

void AddTemplateFlags(FlagSet& command, TemplateFlags& flags) {
  command.Add("--tools", flags.tools_file,
              "File with the functions that the model may call: a JSON array as in OpenAI's API, "
              "[{\"type\": \"function\", \"function\": {\"name\": ..., \"parameters\": ...}}]");
  command.Add("--template-flag", flags.flags,
              "NAME=JSON, a variable of the model's chat template: enable_thinking=false (Qwen3, GLM), "
              "thinking=true (DeepSeek-V3.1), reasoning_effort='\"high\"' (gpt-oss); may be repeated");
}

absl::Status ApplyTemplateFlags(const TemplateFlags& flags, v1::Chat& chat) {
  if (!flags.tools_file.empty()) {
    absl::StatusOr<std::string> tools = ReadFile(flags.tools_file);
    MOE_RETURN_IF_ERROR(tools);
    const std::string source = absl::StrCat("--tools ", flags.tools_file);
    MOE_RETURN_IF_ERROR(CheckUtf8(source, *tools));
    // The router checks the rest.
    if (!nlohmann::json::accept(*tools)) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON; it must be an array of functions"));
    }
    chat.set_tools(*std::move(tools));
  }
  nlohmann::json object = nlohmann::json::object();
  for (const std::string& flag : flags.flags) {
    const size_t equals = flag.find('=');
    const std::string name = flag.substr(0, equals);
    nlohmann::json value(nlohmann::json::value_t::discarded);
    if (equals != std::string::npos) value = nlohmann::json::parse(flag.substr(equals + 1), nullptr, false);
    if (name.empty() || value.is_discarded()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--template-flag ", flag, ": must be NAME=JSON; a text needs quotes: NAME='\"text\"'"));
    }
    object[name] = std::move(value);
  }
  if (!object.empty()) chat.set_template_flags(object.dump());
  return absl::OkStatus();
}

void AddTextFlags(FlagSet& command, TextFlags& flags, const char* text_flag, const char* file_flag) {
  flags.text_flag = text_flag;
  flags.file_flag = file_flag;
  FlagSet group = command.AddGroup("input", "Exactly one of");
  group.Add(text_flag, flags.text, "The text");
  group.Add(file_flag, flags.file, "File with the text; '-' reads stdin");
  group.Add("--token-ids", flags.token_ids, "Token ids, separated by commas").Delimiter(',');
  group.RequireFlags(1, 1);
}

absl::StatusOr<std::string> ReadText(const TextFlags& flags) {
  if (flags.text) {
    MOE_RETURN_IF_ERROR(CheckUtf8(flags.text_flag, *flags.text));
    return *flags.text;
  }
  absl::StatusOr<std::string> text = flags.file == "-" ? ReadStdin() : ReadFile(flags.file);
  MOE_RETURN_IF_ERROR(text);
  MOE_RETURN_IF_ERROR(CheckUtf8(absl::StrCat(flags.file_flag, " ", flags.file), *text));
  return text;
}

absl::Status CheckUtf8(const std::string& source, std::string_view text) {
  const std::optional<size_t> offset = text::FindInvalidUtf8(text);
  if (!offset) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": not valid UTF-8 at byte ", *offset, "; convert it to UTF-8 (iconv -t UTF-8)"));
}

}  // namespace moestro::cli
