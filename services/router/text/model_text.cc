#include "services/router/text/model_text.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/detokenizer.h"
#include "services/router/text/chat_encoder.h"

namespace moestro::router {
namespace {

using Encoder = absl::StatusOr<std::unique_ptr<const ChatEncoder>>;

Encoder MakeEncoder(const text::Tokenizer& tokenizer, const std::string& chat_template,
                    const ModelText::Source& source) {
  Encoder encoder = ChatEncoder::Create(tokenizer, chat_template, source.bos_token, source.eos_token);
  if (encoder.ok()) return encoder;
  return absl::FailedPreconditionError(
      absl::StrCat("this model's chat template cannot be used: ", std::string(encoder.status().message())));
}

class DetokenizingStream final : public TextStream {
 public:
  DetokenizingStream(const text::Tokenizer& tokenizer, bool skip_special) : detokenizer_(tokenizer, skip_special) {}
  std::string Push(int32_t id) override { return detokenizer_.Push(id); }
  std::string Flush() override { return detokenizer_.Flush(); }

 private:
  text::IncrementalDetokenizer detokenizer_;
};

}  // namespace

struct ModelText::Impl {
  std::unique_ptr<const text::Tokenizer> tokenizer;
  Encoder chat = absl::FailedPreconditionError("this model has no chat template: send a prompt instead");
  std::optional<Encoder> tool_chat;  // of chats with tools, if they have a template of their own
  OutputFormat output_format;
};

ModelText::ModelText(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelText::~ModelText() = default;

absl::StatusOr<std::unique_ptr<const ModelText>> ModelText::Create(const Source& source) {
  auto impl = std::make_unique<Impl>();
  text::TokenizerConfig config;
  config.bos_token = source.bos_token;
  config.eos_token = source.eos_token;
  // No effect if the post-processor of tokenizer.json already adds BOS.
  config.add_bos_token = source.add_bos_token;
  MOE_ASSIGN_OR_RETURN(impl->tokenizer, text::Tokenizer::Create({.tokenizer_json = source.tokenizer_json,
                                                                 .tiktoken_ranks = source.tiktoken_ranks,
                                                                 .tokenizer_config_json = source.tokenizer_config_json,
                                                                 .model_type = source.family,
                                                                 .id_limit = source.token_count},
                                                                config));
  if (!source.chat_template.empty()) {
    impl->chat = MakeEncoder(*impl->tokenizer, source.chat_template, source);
  }
  if (!source.tool_use_template.empty()) {
    impl->tool_chat = MakeEncoder(*impl->tokenizer, source.tool_use_template, source);
  }
  std::vector<std::string> special_tokens;
  for (const text::AddedToken& token : impl->tokenizer->added_tokens()) {
    if (token.special) special_tokens.push_back(token.content);
  }
  impl->output_format =
      FindOutputFormat(source.family, source.chat_template + source.tool_use_template, special_tokens);
  return std::unique_ptr<const ModelText>(new ModelText(std::move(impl)));
}

absl::StatusOr<std::vector<int32_t>> ModelText::Encode(std::string_view text, bool plain,
                                                       const text::EncodeLimits& limits) const {
  return impl_->tokenizer->Encode(text, {.add_special_tokens = !plain, .parse_special_tokens = false}, limits);
}

absl::StatusOr<std::vector<int32_t>> ModelText::EncodeRendered(std::string_view text,
                                                               const text::EncodeLimits& limits) const {
  MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> added, impl_->tokenizer->Encode("", {}));
  MOE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, impl_->tokenizer->Encode(text, {}, limits));
  if (!added.empty() && ids.size() > 1 && ids[0] == added[0] && ids[1] == added[0]) ids.erase(ids.begin());
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ModelText::EncodeChat(const text::Chat& chat,
                                                           const text::EncodeLimits& limits) const {
  const Encoder& encoder = !chat.tools.empty() && impl_->tool_chat ? *impl_->tool_chat : impl_->chat;
  MOE_RETURN_IF_ERROR(encoder);
  return (*encoder)->Encode(chat, limits);
}

std::string ModelText::Decode(std::span<const int32_t> ids, bool keep_special_tokens) const {
  return impl_->tokenizer->Decode(ids, /*skip_special=*/!keep_special_tokens);
}

// Unlike a text's, a piece's leading space stays.
std::string ModelText::Piece(int32_t id) const {
  text::Utf8Assembler assembler;
  const std::string complete = assembler.Push(impl_->tokenizer->DecodeBytes(id));
  return complete + assembler.Flush();  // in this order
}

std::string ModelText::Bytes(int32_t id) const { return std::string(impl_->tokenizer->DecodeBytes(id)); }

bool ModelText::IsSpecial(int32_t id) const { return impl_->tokenizer->IsSpecial(id); }

std::unique_ptr<TextStream> ModelText::NewStream(bool keep_special_tokens) const {
  return std::make_unique<DetokenizingStream>(*impl_->tokenizer, /*skip_special=*/!keep_special_tokens);
}

bool ModelText::has_chat_template() const { return impl_->chat.ok(); }
const OutputFormat& ModelText::output_format() const { return impl_->output_format; }
int32_t ModelText::token_count() const { return impl_->tokenizer->size(); }
size_t ModelText::longest_token_bytes() const { return impl_->tokenizer->longest_token_bytes(); }

}  // namespace moestro::router
