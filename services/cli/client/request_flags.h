// Flags that several commands share, and their conversion into a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "moestro/v1/types.pb.h"

namespace moestro {
class FlagSet;
}  // namespace moestro

namespace moestro::v1 {
class Chat;
class GenerateRequest;
}  // namespace moestro::v1

namespace moestro::cli {

struct SamplingFlags {
  uint32_t max_tokens = 0;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  std::string cache_scope;
  std::vector<std::string> stop;
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  std::vector<std::string> logit_bias;  // ID=BIAS
  uint32_t top_logprobs = 0;
  bool keep_special_tokens = false;
  // At most one of these: what the answer must be.
  bool json_object = false;
  std::string json_schema_file;
  std::string grammar_file;
  std::string regex;
};
void AddSamplingFlags(FlagSet& command, SamplingFlags& flags);
// NOT_FOUND names an unreadable file; INVALID_ARGUMENT names the flag and what it must be.
absl::Status ApplySamplingFlags(const SamplingFlags& flags, v1::GenerateRequest& request);

// --way, one of `ways`: chunked, in_place, streamed. Empty: the router chooses.
void AddWayFlag(FlagSet& command, std::string& way, const std::vector<std::string>& ways);
v1::PromptWay WayOf(const std::string& way);

// What a chat's template gets besides the messages.
struct TemplateFlags {
  std::string tools_file;
  std::vector<std::string> flags;  // NAME=JSON
};
void AddTemplateFlags(FlagSet& command, TemplateFlags& flags);
// NOT_FOUND names an unreadable file; INVALID_ARGUMENT names the flag and what it must be.
absl::Status ApplyTemplateFlags(const TemplateFlags& flags, v1::Chat& chat);

// A text or token ids: exactly one of three flags.
struct TextFlags {
  const char* text_flag = nullptr;
  const char* file_flag = nullptr;
  std::optional<std::string> text;
  std::string file;  // "-" = stdin
  std::vector<int32_t> token_ids;
};
// `text_flag` and `file_flag`: their names ("--prompt", "--prompt-file").
void AddTextFlags(FlagSet& command, TextFlags& flags, const char* text_flag, const char* file_flag);
// The text that the first two flags give. NOT_FOUND names an unreadable file; otherwise the errors of CheckUtf8.
absl::StatusOr<std::string> ReadText(const TextFlags& flags);

// The API takes only UTF-8, and does not say which text was bad. INVALID_ARGUMENT begins with `source`, the text's
// origin, and names the offset of the bad byte, counted from 0.
absl::Status CheckUtf8(const std::string& source, std::string_view text);

}  // namespace moestro::cli
