// Fields that the OpenAI APIs share, from JSON to what the router's logic takes. Fields that no API has are ignored; a
// field of a wrong type is INVALID_ARGUMENT, and its path begins the message.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/json/json.h"
#include "services/router/request/api_types.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

// Alternatives that one request may ask for, and choices of all its prompts.
inline constexpr int kMostChoices = 16;
inline constexpr int kMostPrompts = 128;
inline constexpr int kMostAlternatives = 20;  // of each token: OpenAI's limit

struct StreamFields {
  bool stream = false;
  bool include_usage = false;     // a last frame with the usage
  bool continuous_usage = false;  // the usage in every frame
  bool progress = false;          // frames that tell how much of the prompt is computed
  bool keep_alive = true;         // comments while nothing happens
};
StreamFields ReadStreamFields(text::JsonFields& fields);

// The parsed body of a request. INVALID_ARGUMENT as ParseJsonObject.
absl::StatusOr<nlohmann::json> ParseRequest(std::string_view body, const ServedModel& model);

// The most tokens of an answer; 0: the client sets no limit.
uint32_t ReadMaxTokens(text::JsonFields& fields, const char* key);

// max_tokens, sampling, seed, stop, response_format and such; no prompt. `body`: the request's text.
GenerateInput ReadGenerateFields(text::JsonFields& fields, std::string_view body);

// What the answer must be, and what errors call its text. An error that names the field where another one has said it.
void SetConstraint(text::JsonFields& owner, const char* key, Constraint constraint, std::string place,
                   GenerateInput& input);

// schema, name, description and strict of an answer's format: their types. A schema must be there.
void CheckSchema(text::JsonFields& format);

// What computes the prompt: "chunked", "in_place" or "streamed". nullopt: not set.
std::optional<PromptWay> ReadWay(text::JsonFields& fields);

// The choices of one prompt: each has a seed of its own.
std::vector<GenerateInput> Repeat(GenerateInput input, size_t choices);

// A list of token ids at `key`, which must be an array.
std::vector<int32_t> ReadIds(text::JsonFields& fields, const char* key);
std::vector<int32_t> IdsOf(const nlohmann::json& array, const char* key, text::JsonFields& fields);

}  // namespace moestro::router
