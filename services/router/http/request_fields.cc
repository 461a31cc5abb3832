#include "services/router/http/request_fields.h"

#include <algorithm>
#include <cfloat>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"
#include "services/router/http/api.h"

namespace moestro::router {

using nlohmann::json;
using text::JsonFields;

namespace {

// The range is checked where it is known, for all fronts (request/prepare.h).
std::optional<float> ReadFloat(JsonFields& fields, const char* key) {
  if (!fields.Has(key)) return std::nullopt;
  return static_cast<float>(fields.Number(key, -FLT_MAX, FLT_MAX));
}

uint32_t ReadMaxTokens(JsonFields& fields, const char* key) {
  if (!fields.Has(key)) return 0;
  // llama-server's clients send -1 for "no limit".
  const int64_t tokens = fields.Int(key, -1, UINT32_MAX);
  if (tokens == 0) fields.Fail(key, "must be at least 1");
  return tokens < 0 ? 0 : static_cast<uint32_t>(tokens);
}

// A text or a list of texts.
std::vector<std::string> ReadStop(JsonFields& fields) {
  if (!fields.Has("stop")) return {};
  const json& stop = fields.object()["stop"];
  if (stop.is_string()) return {stop.get<std::string>()};
  std::vector<std::string> texts;
  if (!stop.is_array()) fields.Fail("stop", text::Describe(stop) + " is neither a string nor a list of strings");
  for (const json& one : stop) {
    if (!one.is_string()) {
      fields.Fail("stop", text::Describe(one) + " is not a string");
      return {};
    }
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

// {"token id": bias}
std::vector<std::pair<int32_t, float>> ReadLogitBias(JsonFields& fields) {
  std::vector<std::pair<int32_t, float>> biases;
  const JsonFields object = fields.Sub("logit_bias");
  for (const auto& [key, value] : object.object().items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(key, &id)) {
      fields.Fail("logit_bias", text::Quoted(key) + " is not a token id");
    } else if (!value.is_number()) {
      fields.Fail("logit_bias", text::Describe(value) + " is not a number");
    } else {
      biases.emplace_back(id, value.get<float>());
    }
  }
  return biases;
}

// Of response_format, or of llama-server's fields for the same. The text of a schema is as it was written: the answer
// has its keys in that order.
void ReadConstraint(JsonFields& fields, std::string_view body, GenerateInput& input) {
  using Kind = Constraint::Kind;
  const auto set = [&](Kind kind, std::string_view text, const char* field) {
    input.constraint = {.kind = kind, .text = std::string(text)};
    input.constraint_field = field;
  };
  if (fields.Has("grammar")) return set(Kind::kGrammar, fields.StringOr("grammar", ""), "grammar");
  if (fields.Has("json_schema")) return set(Kind::kJsonSchema, text::RawField(body, "json_schema"), "json_schema");
  if (!fields.Has("response_format")) return;
  JsonFields format = fields.Sub("response_format");
  const std::string type = format.StringOr("type", "");
  if (type == "json_object" && !format.Has("schema")) return set(Kind::kJsonObject, "", "response_format");
  if (type == "json_schema" || type == "json_object") {
    // OpenAI's has {"json_schema": {"name": ..., "schema": ...}}.
    const bool is_openai = type == "json_schema";
    JsonFields owner = is_openai ? format.Sub("json_schema") : format;
    CheckSchema(owner);
    std::string_view written = text::RawField(body, "response_format");
    if (is_openai) written = text::RawField(written, "json_schema");
    return set(Kind::kJsonSchema, text::RawField(written, "schema"),
               is_openai ? "response_format.json_schema.schema" : "response_format.schema");
  }
  if (type != "text") format.Fail("type", "must be text, json_object or json_schema");
}

}  // namespace

StreamFields ReadStreamFields(JsonFields& fields) {
  StreamFields stream{.stream = fields.BoolOr("stream", false)};
  JsonFields options = fields.Sub("stream_options");
  stream.include_usage = options.BoolOr("include_usage", false);
  stream.continuous_usage = options.BoolOr("continuous_usage_stats", false);
  stream.progress = fields.BoolOr("return_progress", false);
  stream.keep_alive = fields.BoolOr("keep_alive_comments", true);
  return stream;
}

absl::StatusOr<json> ParseRequest(std::string_view body, const ServedModel& model) {
  return text::ParseJsonObject(body, "the body", MostJsonValues(model));
}

GenerateInput ReadGenerateFields(JsonFields& fields, std::string_view body) {
  GenerateInput input;
  input.max_tokens = ReadMaxTokens(fields, "max_tokens");
  if (fields.Has("max_completion_tokens")) input.max_tokens = ReadMaxTokens(fields, "max_completion_tokens");
  input.temperature = ReadFloat(fields, "temperature");
  input.top_p = ReadFloat(fields, "top_p");
  // -1 is vLLM's word for "off".
  if (fields.Has("top_k")) input.top_k = static_cast<int32_t>(std::max<int64_t>(0, fields.Int("top_k", -1, INT32_MAX)));
  if (fields.Has("seed")) input.seed = static_cast<uint64_t>(fields.Int("seed", INT64_MIN, INT64_MAX));
  if (fields.Has("stop_token_ids")) input.stop_ids = ReadIds(fields, "stop_token_ids");
  input.ignore_eos = fields.BoolOr("ignore_eos", false);
  input.stop = ReadStop(fields);
  input.min_p = ReadFloat(fields, "min_p");
  input.presence_penalty = ReadFloat(fields, "presence_penalty");
  input.frequency_penalty = ReadFloat(fields, "frequency_penalty");
  // llama-server's name for it is the second.
  input.repetition_penalty =
      ReadFloat(fields, fields.Has("repetition_penalty") ? "repetition_penalty" : "repeat_penalty");
  input.logit_bias = ReadLogitBias(fields);
  ReadConstraint(fields, body, input);
  input.way = ReadWay(fields);
  return input;
}

void CheckSchema(JsonFields& format) {
  if (!format.Has("schema")) format.Fail("schema", "missing");
  format.Sub("schema");
  format.StringOr("name", "");
  format.StringOr("description", "");
  format.BoolOr("strict", false);
}

std::optional<PromptWay> ReadWay(JsonFields& fields) {
  if (!fields.Has("way")) return std::nullopt;
  const std::string name = fields.StringOr("way", "");
  for (const PromptWay way : kPromptWays) {
    if (name == WayName(way)) return way;
  }
  fields.Fail("way", "must be chunked, in_place or streamed");
  return std::nullopt;
}

std::vector<GenerateInput> Repeat(GenerateInput input, size_t choices) {
  std::vector<GenerateInput> inputs(choices, input);
  for (size_t i = 0; i < choices; ++i) {
    if (input.seed) inputs[i].seed = *input.seed + i;
  }
  return inputs;
}

std::vector<int32_t> IdsOf(const json& array, const char* key, JsonFields& fields) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const json& id : array) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      fields.Fail(key, text::Describe(id) + " is not a token id");
      return {};
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> ReadIds(JsonFields& fields, const char* key) {
  const json& value = fields.object()[key];
  if (value.is_array()) return IdsOf(value, key, fields);
  fields.Fail(key, text::Describe(value) + " is not a list of token ids");
  return {};
}

}  // namespace moestro::router
