#include "services/cli/client/request_flags.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/text/utf8.h"
#include "moestro/v1/inference.pb.h"

namespace moestro::cli {

void AddSamplingFlags(CLI::App& app, SamplingFlags& flags) {
  app.add_option("--max-tokens", flags.max_tokens, "Most tokens to generate; 0: the server's default");
  app.add_option("--temperature", flags.temperature, "0: greedy; default: the model's own");
  app.add_option("--top-p", flags.top_p, "Smallest set of most likely tokens of this probability; 1: off");
  app.add_option("--top-k", flags.top_k, "Only this many most likely tokens; 0: off");
  app.add_option("--seed", flags.seed, "The same request with the same seed gives the same tokens");
  app.add_option("--stop-id", flags.stop_ids,
                 "Token id that ends the answer, in addition to the model's own; may be repeated")
      ->delimiter(',');
  app.add_flag("--ignore-eos", flags.ignore_eos, "Continue past the model's own stop ids");
  app.add_option("--cache-scope", flags.cache_scope,
                 "Share cached prefixes with requests of this scope only; default: the shared scope");
}

void ApplySamplingFlags(const SamplingFlags& flags, v1::GenerateRequest& request) {
  request.set_max_tokens(flags.max_tokens);
  if (flags.temperature) request.set_temperature(*flags.temperature);
  if (flags.top_p) request.set_top_p(*flags.top_p);
  if (flags.top_k) request.set_top_k(*flags.top_k);
  if (flags.seed) request.set_seed(*flags.seed);
  request.mutable_stop_ids()->Add(flags.stop_ids.begin(), flags.stop_ids.end());
  request.set_ignore_eos(flags.ignore_eos);
  request.set_cache_scope(flags.cache_scope);
}

void AddTemplateFlags(CLI::App& app, TemplateFlags& flags) {
  app.add_option("--tools", flags.tools_file,
                 "File with the functions that the model may call: a JSON array as in OpenAI's API, "
                 "[{\"type\": \"function\", \"function\": {\"name\": ..., \"parameters\": ...}}]");
  app.add_option("--template-flag", flags.flags,
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

void AddTextFlags(CLI::App& app, TextFlags& flags, const char* text_flag, const char* file_flag) {
  flags.text_flag = text_flag;
  flags.file_flag = file_flag;
  CLI::Option_group* group = app.add_option_group("input", "Exactly one of");
  group->add_option(text_flag, flags.text, "The text");
  group->add_option(file_flag, flags.file, "File with the text; '-' reads stdin");
  group->add_option("--token-ids", flags.token_ids, "Token ids, separated by commas")->delimiter(',');
  group->require_option(1);
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
