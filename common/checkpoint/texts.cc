#include "common/checkpoint/texts.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace moestro::checkpoint {

absl::StatusOr<int32_t> CheckTexts(const CheckpointDocuments& documents, const GenerationDefaults& defaults,
                                   const weights::ModelSpec& spec, std::vector<std::string>* warnings) {
  if (documents.tokenizer_json.empty() && documents.tiktoken_ranks.empty()) {
    return absl::NotFoundError(
        "tokenizer.json: missing or empty, and there is no tiktoken.model; download the model's tokenizer too");
  }
  text::TokenizerConfig config;
  config.bos_token = defaults.bos_token;
  config.eos_token = defaults.eos_token;
  config.add_bos_token = defaults.add_bos_token;
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<const text::Tokenizer> tokenizer,
                       text::Tokenizer::Create({.tokenizer_json = documents.tokenizer_json,
                                                .tiktoken_ranks = documents.tiktoken_ranks,
                                                .tokenizer_config_json = documents.tokenizer_config_json,
                                                .model_type = spec.family,
                                                .id_limit = static_cast<int32_t>(spec.vocab_size)},
                                               config));
  if (tokenizer->size() > spec.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ids up to ", tokenizer->size() - 1,
                                                   ", but config.json has vocab_size = ", spec.vocab_size));
  }
  for (const std::string& source : {defaults.chat_template, defaults.tool_use_template}) {
    if (source.empty()) continue;
    const absl::Status parsed = text::ChatTemplate::Parse(source).status();
    if (!parsed.ok()) {
      warnings->push_back(absl::StrCat("chats are refused, because the model's chat template cannot be used: ",
                                       std::string(parsed.message())));
    }
  }
  return tokenizer->size();
}

}  // namespace moestro::checkpoint
