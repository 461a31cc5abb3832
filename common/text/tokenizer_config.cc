#include "common/text/tokenizer_config.h"

#include "common/base/status.h"
#include "common/text/json_field.h"

namespace moestro {
namespace {

constexpr std::string_view kFile = "tokenizer_config.json";

// A token is its text, or an object with the text in "content".
absl::StatusOr<std::string> TokenText(const Json& config, const char* key) {
  const Json* field = FindField(config, key);
  if (field != nullptr && field->is_object()) return RequiredString(*field, "content", kFile);
  return StringField(config, key, "", kFile);
}

absl::StatusOr<std::string> ChatTemplateSource(const Json& config) {
  const Json* field = FindField(config, "chat_template");
  if (field == nullptr || !field->is_array()) return StringField(config, "chat_template", "", kFile);
  for (const Json& entry : *field) {
    MOE_ASSIGN_OR_RETURN(const std::string name, RequiredString(entry, "name", kFile));
    if (name == "default") return RequiredString(entry, "template", kFile);
  }
  return absl::InvalidArgumentError("tokenizer_config.json: 'chat_template' has no entry named 'default'");
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config_json) {
  MOE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(tokenizer_config_json, kFile));
  TokenizerConfig config;
  MOE_ASSIGN_OR_RETURN(config.bos_token, TokenText(json, "bos_token"));
  MOE_ASSIGN_OR_RETURN(config.eos_token, TokenText(json, "eos_token"));
  MOE_ASSIGN_OR_RETURN(config.add_bos_token, BoolField(json, "add_bos_token", false, kFile));
  MOE_ASSIGN_OR_RETURN(config.add_eos_token, BoolField(json, "add_eos_token", false, kFile));
  MOE_ASSIGN_OR_RETURN(config.chat_template, ChatTemplateSource(json));
  return config;
}

}  // namespace moestro
