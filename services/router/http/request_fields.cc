#include "services/router/http/request_fields.h"

#include <algorithm>
#include <cfloat>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// A grammar whose texts are the choices.
std::string ChoiceGrammar(JsonFields& owner, const char* key) {
  const json& choices = owner.object()[key];
  const auto is_text = [](const json& choice) { return choice.is_string(); };
  if (!choices.is_array() || choices.empty() || !std::ranges::all_of(choices, is_text)) {
    owner.Fail(key, "must be a list of strings, with one at least");
    return {};
  }
  std::string grammar;
  for (const json& choice : choices) {
    absl::StrAppend(&grammar, grammar.empty() ? "root ::= \"" : " | \"");
    for (const char c : choice.get_ref<const std::string&>()) {
      if (c == '"' || c == '\\') grammar += '\\';
      if (static_cast<unsigned char>(c) < 0x20) {
        absl::StrAppendFormat(&grammar, "\\x%02x", static_cast<unsigned char>(c));
      } else {
        grammar += c;
      }
    }
    grammar += '"';
  }
  return grammar;
}

// What the answer must be, from fields in which it may stand.
class ConstraintReader {
 public:
  explicit ConstraintReader(GenerateInput& input) : input_(input) {}

  enum class Form { kSchema, kGrammar, kRegex, kChoice, kJsonObject };
  struct Field {
    const char* name;
    Form form;
  };

  // Reads the fields that are there. `written`: of `owner`. `path`: of `owner`, empty or with a dot at its end.
  void Read(JsonFields& owner, std::string_view written, const std::string& path, std::span<const Field> fields) {
    for (const Field& field : fields) {
      if (IsSet(owner, field.name)) ReadOne(owner, written, path, field);
    }
  }

 private:
  // An empty text and false ask for nothing: clients send every field that they know.
  static bool IsSet(const JsonFields& owner, const char* key) {
    return owner.Has(key) && owner.object()[key] != "" && owner.object()[key] != false;
  }

  void ReadOne(JsonFields& owner, std::string_view written, const std::string& path, const Field& field) {
    using Kind = Constraint::Kind;
    const json& value = owner.object()[field.name];
    const auto set = [&](Kind kind, std::string text) {
      SetConstraint(owner, field.name, {.kind = kind, .text = std::move(text)}, path + field.name, input_);
    };
    switch (field.form) {
      case Form::kSchema:
        // The text of a schema is as it was written: the answer has its keys in that order.
        if (value.is_string()) return set(Kind::kJsonSchema, value.get<std::string>());
        return set(Kind::kJsonSchema, std::string(text::RawField(written, field.name)));
      case Form::kGrammar:
        return set(Kind::kGrammar, owner.StringOr(field.name, ""));
      case Form::kRegex:
        return set(Kind::kRegex, owner.StringOr(field.name, ""));
      case Form::kChoice:
        return set(Kind::kGrammar, ChoiceGrammar(owner, field.name));
      case Form::kJsonObject:
        if (owner.BoolOr(field.name, false)) set(Kind::kJsonObject, "");
    }
  }

  GenerateInput& input_;
};

using Form = ConstraintReader::Form;
// Of llama-server, vLLM, SGLang, TabbyAPI and text-generation-webui.
constexpr ConstraintReader::Field kConstraintFields[] = {
    {"json_schema", Form::kSchema},
    {"guided_json", Form::kSchema},
    {"guided_regex", Form::kRegex},
    {"guided_choice", Form::kChoice},
    {"guided_grammar", Form::kGrammar},
    {"guided_json_object", Form::kJsonObject},
    {"regex", Form::kRegex},
    {"ebnf", Form::kGrammar},
    {"regex_pattern", Form::kRegex},
    {"grammar_string", Form::kGrammar},
};
// Of vLLM's structured_outputs, and of the same under its older name.
constexpr ConstraintReader::Field kStructuredFields[] = {
    {"json", Form::kSchema},
    {"regex", Form::kRegex},
    {"choice", Form::kChoice},
    {"grammar", Form::kGrammar},
    {"json_object", Form::kJsonObject},
};
// llama-server's grammar is a text, TGI's {"type": "json" or "regex", "value"}.
void ReadGrammar(JsonFields& fields, std::string_view body, ConstraintReader& constraint) {
  if (!fields.Has("grammar") || !fields.object()["grammar"].is_object()) {
    constexpr ConstraintReader::Field kGrammar[] = {{"grammar", Form::kGrammar}};
    return constraint.Read(fields, body, "", kGrammar);
  }
  JsonFields grammar = fields.Sub("grammar");
  const std::string type = grammar.StringOr("type", "");
  if (type != "json" && type != "json_schema" && type != "regex") {
    return grammar.Fail("type", "must be json, json_schema or regex");
  }
  if (!grammar.Has("value")) grammar.Fail("value", "missing");
  const ConstraintReader::Field value[] = {{"value", type == "regex" ? Form::kRegex : Form::kSchema}};
  constraint.Read(grammar, text::RawField(body, "grammar"), "grammar.", value);
}

void ReadResponseFormat(JsonFields& fields, std::string_view body, ConstraintReader& constraint, GenerateInput& input) {
  using Kind = Constraint::Kind;
  if (!fields.Has("response_format")) return;
  JsonFields format = fields.Sub("response_format");
  const std::string type = format.StringOr("type", "");
  const std::string_view written = text::RawField(body, "response_format");
  if (type == "json_schema" || type == "json_object" || type == "json") {
    // OpenAI's has {"json_schema": {"name": ..., "schema": ...}}, llama-server's the schema itself, TGI's a value.
    const bool is_openai = format.Has("json_schema") || (type == "json_schema" && !format.Has("schema"));
    if (!is_openai && !format.Has("schema") && !format.Has("value")) {
      return SetConstraint(fields, "response_format", {.kind = Kind::kJsonObject}, "response_format", input);
    }
    JsonFields owner = is_openai ? format.Sub("json_schema") : format;
    const ConstraintReader::Field field[] = {{owner.Has("value") ? "value" : "schema", Form::kSchema}};
    if (!owner.Has("value")) CheckSchema(owner);
    return constraint.Read(owner, is_openai ? text::RawField(written, "json_schema") : written,
                           is_openai ? "response_format.json_schema." : "response_format.", field);
  }
  // Those of other servers for the same.
  struct Other {
    const char* type;
    ConstraintReader::Field field;
  };
  constexpr Other kOthers[] = {{"regex", {"pattern", Form::kRegex}},
                               {"regex", {"value", Form::kRegex}},
                               {"regex", {"regex", Form::kRegex}},
                               {"grammar", {"grammar", Form::kGrammar}},
                               {"ebnf", {"ebnf", Form::kGrammar}}};
  for (const Other& other : kOthers) {
    if (type != other.type || !format.Has(other.field.name)) continue;
    return constraint.Read(format, written, "response_format.", std::span(&other.field, 1));
  }
  if (type != "text") format.Fail("type", "must be text, json_object or json_schema");
}

// Of response_format, or of other servers' fields for the same.
void ReadConstraint(JsonFields& fields, std::string_view body, GenerateInput& input) {
  ConstraintReader constraint(input);
  ReadGrammar(fields, body, constraint);
  constraint.Read(fields, body, "", kConstraintFields);
  for (const char* key : {"structured_outputs", "guided_decoding"}) {
    JsonFields inner = fields.Sub(key);
    constraint.Read(inner, text::RawField(body, key), absl::StrCat(key, "."), kStructuredFields);
  }
  ReadResponseFormat(fields, body, constraint, input);
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

uint32_t ReadMaxTokens(JsonFields& fields, const char* key) {
  if (!fields.Has(key)) return 0;
  // llama-server's clients send -1 for "no limit". More than any context has is a bound like another.
  const int64_t tokens = fields.Int(key, -1, INT64_MAX);
  if (tokens == 0) fields.Fail(key, "must be at least 1");
  return static_cast<uint32_t>(std::clamp<int64_t>(tokens, 0, UINT32_MAX));
}

GenerateInput ReadGenerateFields(JsonFields& fields, std::string_view body) {
  GenerateInput input;
  // The last one goes first; the first is llama-server's name for it.
  for (const char* key : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    if (fields.Has(key)) input.max_tokens = ReadMaxTokens(fields, key);
  }
  input.temperature = ReadFloat(fields, "temperature");
  input.top_p = ReadFloat(fields, "top_p");
  // -1 is vLLM's word for "off".
  if (fields.Has("top_k")) input.top_k = static_cast<int32_t>(std::max<int64_t>(0, fields.Int("top_k", -1, INT32_MAX)));
  // -1 is the word of llama-server and vLLM for "choose one".
  if (const int64_t seed = fields.IntOr("seed", -1, INT64_MIN, INT64_MAX); seed != -1) {
    input.seed = static_cast<uint64_t>(seed);
  }
  if (fields.Has("stop_token_ids")) input.stop_ids = ReadIds(fields, "stop_token_ids");
  input.ignore_eos = fields.BoolOr("ignore_eos", false);
  input.stop = ReadStop(fields);
  // SGLang's name for it is the second.
  input.keep_stop_text = fields.BoolOr("include_stop_str_in_output", fields.BoolOr("no_stop_trim", false));
  input.keep_special_tokens = !fields.BoolOr("skip_special_tokens", true);
  input.cache_scope = fields.StringOr("cache_salt", "");  // vLLM's name
  input.min_p = ReadFloat(fields, "min_p");
  input.presence_penalty = ReadFloat(fields, "presence_penalty");
  input.frequency_penalty = ReadFloat(fields, "frequency_penalty");
  // llama-server's name for it is the second.
  input.repetition_penalty =
      ReadFloat(fields, fields.Has("repetition_penalty") ? "repetition_penalty" : "repeat_penalty");
  input.logit_bias = ReadLogitBias(fields);
  ReadConstraint(fields, body, input);
  input.way = ReadWay(fields);
  // Without ends of its own an answer is as long as it may be.
  const bool is_endless = input.ignore_eos && input.stop.empty() && input.stop_ids.empty();
  if (fields.IntOr("min_tokens", 0, 0, UINT32_MAX) > 0 && !is_endless) {
    fields.Unsupported("min_tokens",
                       "is supported with ignore_eos: true and without stop and stop_token_ids only: "
                       "then an answer has max_tokens");
  }
  return input;
}

void SetConstraint(JsonFields& owner, const char* key, Constraint constraint, std::string place, GenerateInput& input) {
  // Clients write one form under its newer and its older name.
  if (input.constraint.kind == constraint.kind && input.constraint.text == constraint.text) return;
  if (input.constraint.kind != Constraint::Kind::kNone) {
    return owner.Fail(key, absl::StrCat("asks for one form of the answer, and ", input.constraint_field,
                                        " for another: send one of them"));
  }
  input.constraint = std::move(constraint);
  input.constraint_field = std::move(place);
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
