#include "services/router/request/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "services/router/request/request_bounds.h"

namespace moestro::router {
namespace {

// The range that published models and their clients use. Above it, sampling is almost uniform.
constexpr float kMaxTemperature = 2;
// OpenAI's ranges.
constexpr float kMaxPenalty = 2;
constexpr float kMaxBias = 100;
constexpr uint32_t kMaxAlternatives = 20;
// Published advice is 1 to 2. The range keeps every logit finite.
constexpr float kMinRepetitionPenalty = 0.01f;
constexpr float kMaxRepetitionPenalty = 10;
constexpr uint32_t kMaxScoreAlternatives = 100;
// A gRPC client accepts messages of 4 MiB unless configured otherwise. Leaves room for the envelope.
constexpr size_t kMaxDecodedBytes = (4 << 20) - 1024;
constexpr size_t kIdsBetweenChecks = 4096;
// Real text stays far below this. Merging a piece of this size takes 8 MiB.
constexpr size_t kMaxPieceBytes = 256 << 10;

absl::Status OutOfRange(const char* field, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": must be ", allowed));
}

// Checks that ids are in [0, token_count). `field` begins the message.
absl::Status CheckTokenIds(std::span<const int32_t> ids, int32_t token_count, const char* field) {
  const auto bad = std::ranges::find_if(ids, [&](int32_t id) { return id < 0 || id >= token_count; });
  if (bad == ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", *bad, " is not a token id of this model (0 to ", token_count - 1, ")"));
}

text::EncodeLimits LimitsOf(size_t max_tokens, const CancelCheck& check) {
  return {.max_tokens = max_tokens, .max_piece_bytes = kMaxPieceBytes, .check = check};
}

// What `encode` gives with limits. Names the field of a text that has more tokens than the context.
absl::StatusOr<std::vector<int32_t>> Encoded(
    absl::FunctionRef<absl::StatusOr<std::vector<int32_t>>(const text::EncodeLimits&)> encode, const ServedModel& model,
    const char* field, const CancelCheck& check) {
  const size_t context = model.max_context_tokens;
  absl::StatusOr<std::vector<int32_t>> ids = encode(LimitsOf(MostCountedTokens(model), check));
  if (ids.ok() && ids->size() > context) return OverContextError(field, {.tokens = ids->size(), .context = context});
  if (absl::IsOutOfRange(ids.status())) {
    return OverContextError(field, {.tokens = MostCountedTokens(model) + 1, .is_exact = false, .context = context});
  }
  // A text that cannot be counted may be too long all the same: then shortening it helps.
  if (absl::IsInvalidArgument(ids.status()) && absl::IsOutOfRange(encode(LimitsOf(context, check)).status())) {
    return OverContextError(field, {.tokens = context + 1, .is_exact = false, .context = context});
  }
  return ids;
}

struct ChatBytes {
  size_t contents = 0;
  size_t others = 0;
};

ChatBytes CountBytes(const text::Chat& chat) {
  ChatBytes bytes;
  for (const text::ChatMessage& message : chat.messages) {
    bytes.contents += message.content.size();
    bytes.others += message.tool_call_id.size() + message.name.size() + message.reasoning_content.size();
    for (const text::ToolCall& call : message.tool_calls) {
      bytes.others += call.id.size() + call.name.size() + call.arguments.size();
    }
  }
  bytes.others += chat.tools.size() + chat.template_flags.size();
  return bytes;
}

struct Tokenizing {
  const ServedModel& model;
  const char* text_field;
  const CancelCheck& check;

  absl::StatusOr<std::vector<int32_t>> operator()(std::monostate) const {
    return absl::InvalidArgumentError("input: set a prompt, token_ids or a chat");
  }
  absl::StatusOr<std::vector<int32_t>> operator()(const PlainText& input) const {
    if (input.text.empty()) return absl::InvalidArgumentError(absl::StrCat(text_field, ": is empty"));
    if (!input.rendered) return EncodeText(input.text, /*plain=*/false, model, text_field, check);
    return Encoded([&](const text::EncodeLimits& limits) { return model.text->EncodeRendered(input.text, limits); },
                   model, text_field, check);
  }
  absl::StatusOr<std::vector<int32_t>> operator()(const TokenList& ids) const {
    if (ids.size() > model.max_context_tokens) {
      return OverContextError("token_ids.ids", {.tokens = ids.size(), .context = model.max_context_tokens});
    }
    MOE_RETURN_IF_ERROR(CheckTokenIds(ids, model.text->token_count(), "token_ids"));
    return ids;
  }
  absl::StatusOr<std::vector<int32_t>> operator()(const text::Chat& chat) const {
    if (chat.messages.empty()) return absl::InvalidArgumentError("chat.messages: is empty");
    return EncodeChat(chat, model, check);
  }
};

absl::StatusOr<std::vector<int32_t>> Tokenize(const PromptInput& input, const ServedModel& model,
                                              const char* text_field, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, std::visit(Tokenizing{model, text_field, check}, input));
  if (tokens.empty()) return absl::InvalidArgumentError("input: has no tokens");
  return tokens;
}

// Checks what the client sent only. The checkpoint's defaults were checked with it, and may exceed these limits.
absl::Status CheckSampling(const GenerateInput& input) {
  // The conditions are written so that NaN fails.
  if (input.temperature && !(*input.temperature >= 0 && *input.temperature <= kMaxTemperature)) {
    return OutOfRange("temperature", absl::StrCat("0 to ", kMaxTemperature));
  }
  if (input.top_p && !(*input.top_p >= 0 && *input.top_p <= 1)) return OutOfRange("top_p", "0 to 1");
  if (input.top_k && *input.top_k < 0) return OutOfRange("top_k", "0 or more");
  if (input.min_p && !(*input.min_p >= 0 && *input.min_p <= 1)) return OutOfRange("min_p", "0 to 1");
  for (const auto& [field, penalty] : {std::pair("presence_penalty", input.presence_penalty),
                                       std::pair("frequency_penalty", input.frequency_penalty)}) {
    if (penalty && !(*penalty >= -kMaxPenalty && *penalty <= kMaxPenalty)) {
      return OutOfRange(field, absl::StrCat(-kMaxPenalty, " to ", kMaxPenalty));
    }
  }
  if (input.repetition_penalty &&
      !(*input.repetition_penalty >= kMinRepetitionPenalty && *input.repetition_penalty <= kMaxRepetitionPenalty)) {
    return OutOfRange("repetition_penalty", absl::StrCat(kMinRepetitionPenalty, " to ", kMaxRepetitionPenalty));
  }
  if (input.top_logprobs > kMaxAlternatives) {
    return OutOfRange("top_logprobs", absl::StrCat("0 to ", kMaxAlternatives));
  }
  return absl::OkStatus();
}

// In the order of the ids.
absl::StatusOr<std::vector<std::pair<int32_t, float>>> PrepareLogitBias(const GenerateInput& input,
                                                                        const ServedModel& model) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kLogitBiases, "logit_bias", input.logit_bias.size()));
  std::vector<std::pair<int32_t, float>> biases = input.logit_bias;
  std::ranges::sort(biases, {}, [](const auto& bias) { return bias.first; });
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : biases) {
    if (!(bias >= -kMaxBias && bias <= kMaxBias)) {
      return OutOfRange("logit_bias", absl::StrCat(-kMaxBias, " to ", kMaxBias));
    }
    ids.push_back(id);
  }
  MOE_RETURN_IF_ERROR(CheckTokenIds(ids, model.text->token_count(), "logit_bias"));
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
    return absl::InvalidArgumentError(absl::StrCat("logit_bias: token ", *twice, " has more than one"));
  }
  return biases;
}

absl::Status CheckStopTexts(const GenerateInput& input, const ServedModel& model) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kStopTexts, "stop", input.stop.size()));
  for (const std::string& text : input.stop) {
    if (text.empty()) return absl::InvalidArgumentError("stop: a text is empty");
    MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kStopTextBytes, "stop", text.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConstraintText(const GenerateInput& input, const ServedModel& model) {
  const Constraint& constraint = input.constraint;
  const std::string& field = input.constraint_field;
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kConstraintBytes, field.c_str(), constraint.text.size()));
  switch (constraint.kind) {
    case Constraint::Kind::kNone:
    case Constraint::Kind::kJsonObject:
      if (constraint.text.empty()) return absl::OkStatus();
      return absl::InvalidArgumentError(field + ": must be empty for this kind");
    case Constraint::Kind::kJsonSchema:
    case Constraint::Kind::kGrammar:
    case Constraint::Kind::kRegex:
      if (constraint.text.empty()) return absl::InvalidArgumentError(field + ": is empty");
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError("constraint.kind: is unknown to this router");
}

namespace {

Sampling PrepareSampling(const GenerateInput& input, const ServedModel& model, uint64_t seed) {
  // The likeliest token alone reaches a top_p of 0.
  const bool is_greedy = input.top_p == 0.0f;
  return {.temperature = is_greedy ? 0 : input.temperature.value_or(model.default_temperature),
          .top_p = is_greedy ? 1 : input.top_p.value_or(model.default_top_p),
          .top_k = input.top_k.value_or(model.default_top_k),
          .seed = input.seed.value_or(seed),
          .min_p = input.min_p.value_or(model.default_min_p),
          .presence_penalty = input.presence_penalty.value_or(0),
          .frequency_penalty = input.frequency_penalty.value_or(0),
          .repetition_penalty = input.repetition_penalty.value_or(model.default_repetition_penalty),
          .top_logprobs = input.top_logprobs,
          .constraint = input.constraint};
}

// An error unless `needed` tokens fit the context, of which an API key may have a part only. The error tells of
// `tokens`.
absl::StatusOr<int64_t> ContextFor(size_t needed, size_t tokens, const char* field, const ServedModel& model,
                                   const PrepareLimits& limits) {
  const int64_t of_model = model.max_context_tokens;
  const int64_t most = std::min(of_model, limits.tenant.context.value_or(of_model));
  if (static_cast<int64_t>(needed) <= most) return most;
  return OverContextError(field,
                          {.tokens = tokens, .context = static_cast<size_t>(most), .is_of_key = most < of_model});
}

// Agents ask for as much as any model could write, whatever the prompt: the wish is a bound.
absl::StatusOr<uint32_t> PrepareMaxTokens(uint32_t asked, size_t prompt, const ServedModel& model,
                                          const PrepareLimits& limits) {
  MOE_ASSIGN_OR_RETURN(const int64_t context, ContextFor(prompt + 1, prompt, "input", model, limits));
  const int64_t room = context - static_cast<int64_t>(prompt);
  const int64_t wanted = asked == 0 ? DefaultMaxTokens(model, limits) : asked;
  const int64_t most = std::min(room, limits.tenant.max_tokens.value_or(room));
  return static_cast<uint32_t>(wanted == 0 ? most : std::min(wanted, most));
}

}  // namespace

uint32_t DefaultMaxTokens(const ServedModel& model, const PrepareLimits& limits) {
  return limits.default_max_tokens > 0 ? limits.default_max_tokens : model.default_max_tokens;
}

absl::Status CheckRequestId(const std::string& id, const ServedModel& model) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kRequestIdBytes, "request_id", id.size()));
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._:-", c);
  };
  if (std::ranges::all_of(id, allowed)) return absl::OkStatus();
  return absl::InvalidArgumentError("request_id: may have letters, digits and \"._:-\" only");
}

absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, bool plain, const ServedModel& model,
                                                const char* field, const CancelCheck& check) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kTextBytes, field, text.size()));
  return Encoded([&](const text::EncodeLimits& limits) { return model.text->Encode(text, plain, limits); }, model,
                 field, check);
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const text::Chat& chat, const ServedModel& model,
                                                const CancelCheck& check) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kMessages, "chat.messages", chat.messages.size()));
  size_t calls = 0;
  for (const text::ChatMessage& message : chat.messages) calls += message.tool_calls.size();
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kToolCalls, "chat.messages.tool_calls", calls));
  // A template may leave out old parts of the contents, such as reasoning. They count here all the same: ordinary text
  // has far fewer bytes per token than the longest token has.
  const ChatBytes bytes = CountBytes(chat);
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kTextBytes, "chat.messages.content", bytes.contents));
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kTextBytes, "chat", bytes.contents + bytes.others));
  return Encoded([&](const text::EncodeLimits& limits) { return model.text->EncodeChat(chat, limits); }, model, "chat",
                 check);
}

absl::StatusOr<std::string> DecodeIds(std::span<const int32_t> ids, bool keep_special_tokens, const ServedModel& model,
                                      const CancelCheck& check) {
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kTokenIds, "ids", ids.size()));
  MOE_RETURN_IF_ERROR(CheckTokenIds(ids, model.text->token_count(), "ids"));
  const std::unique_ptr<TextStream> stream = model.text->NewStream(keep_special_tokens);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (check && i % kIdsBetweenChecks == 0) MOE_RETURN_IF_ERROR(check());
    text += stream->Push(ids[i]);
    if (text.size() > kMaxDecodedBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("ids: their text has more than ", kMaxDecodedBytes, " bytes: send fewer at once"));
    }
  }
  return text + stream->Flush();
}

absl::StatusOr<GenerateJob> PrepareGenerate(const GenerateInput& input, const ServedModel& model,
                                            const PrepareLimits& limits, std::string request_id, uint64_t seed,
                                            const CancelCheck& check) {
  GenerateJob job{.request_id = std::move(request_id),
                  .fingerprint = model.fingerprint,
                  .prompt = {},
                  .max_tokens = 0,
                  .choices = std::max(1u, input.choices),
                  .sampling = {},
                  .stop_ids = {},
                  .cache_scope = input.cache_scope,
                  .stop = input.stop,
                  .keep_stop_text = input.keep_stop_text,
                  .keep_special_tokens = input.keep_special_tokens,
                  .way = input.way};
  MOE_RETURN_IF_ERROR(CheckSampling(input));
  job.sampling = PrepareSampling(input, model, seed);
  MOE_ASSIGN_OR_RETURN(job.sampling.logit_bias, PrepareLogitBias(input, model));
  MOE_RETURN_IF_ERROR(CheckConstraintText(input, model));
  MOE_RETURN_IF_ERROR(CheckStopTexts(input, model));
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kCacheScopeBytes, "cache_scope", input.cache_scope.size()));
  MOE_RETURN_IF_ERROR(CheckBound(model, Quantity::kStopIds, "stop_ids", input.stop_ids.size()));
  MOE_RETURN_IF_ERROR(CheckTokenIds(input.stop_ids, model.text->token_count(), "stop_ids"));
  MOE_ASSIGN_OR_RETURN(job.prompt, Tokenize(input.prompt, model, "prompt", check));
  MOE_ASSIGN_OR_RETURN(job.max_tokens, PrepareMaxTokens(input.max_tokens, job.prompt.size(), model, limits));
  job.stop_ids = input.stop_ids;
  if (!input.ignore_eos) job.stop_ids.insert(job.stop_ids.end(), model.stop_ids.begin(), model.stop_ids.end());
  std::ranges::sort(job.stop_ids);
  job.stop_ids.erase(std::unique(job.stop_ids.begin(), job.stop_ids.end()), job.stop_ids.end());
  return job;
}

absl::StatusOr<ScoreJob> PrepareScore(const ScoreInput& input, const ServedModel& model, const PrepareLimits& limits,
                                      std::string request_id, const CancelCheck& check) {
  if (input.top > kMaxScoreAlternatives) return OutOfRange("top", absl::StrCat("0 to ", kMaxScoreAlternatives));
  if (input.way == PromptWay::kChunked) return OutOfRange("way", "in place or streamed: decode scores nothing");
  ScoreJob job{.request_id = std::move(request_id),
               .fingerprint = model.fingerprint,
               .tokens = {},
               .top = input.top,
               .way = input.way};
  MOE_ASSIGN_OR_RETURN(job.tokens, Tokenize(input.text, model, "text", check));
  MOE_RETURN_IF_ERROR(ContextFor(job.tokens.size(), job.tokens.size(), "text", model, limits).status());
  return job;
}

}  // namespace moestro::router
