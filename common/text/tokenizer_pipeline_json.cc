#include "common/text/tokenizer_pipeline_json.h"

#include "common/base/status.h"
#include "common/text/concat.h"

namespace moestro::text {
namespace {

// A step of type "Sequence" has its parts under `parts_key`; any other step is its own single part.
absl::StatusOr<std::vector<const Json*>> Flatten(const Json* step, const char* parts_key, std::string_view where) {
  std::vector<const Json*> parts;
  if (step == nullptr) return parts;
  MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", where));
  if (type != "Sequence") return std::vector<const Json*>{step};
  MOE_ASSIGN_OR_RETURN(const Json* array, RequiredArray(*step, parts_key, where));
  for (const Json& part : *array) {
    MOE_ASSIGN_OR_RETURN(const std::string part_type, RequiredString(part, "type", where));
    if (part_type == "Sequence") return UnsupportedField(where, "a Sequence inside a Sequence");
    parts.push_back(&part);
  }
  return parts;
}

absl::Status CheckNormalizer(const Json& file) {
  MOE_ASSIGN_OR_RETURN(const auto parts, Flatten(FindField(file, "normalizer"), "normalizers", "normalizer"));
  if (parts.empty()) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*parts[0], "type", "normalizer"));
  return UnsupportedField("normalizer.type", type);
}

absl::StatusOr<std::string> SplitPattern(const Json& step) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  MOE_ASSIGN_OR_RETURN(const std::string behavior, RequiredString(step, "behavior", kWhere));
  if (behavior != "Isolated") return UnsupportedField("pre_tokenizer Split.behavior", behavior);
  MOE_ASSIGN_OR_RETURN(const bool invert, BoolField(step, "invert", false, kWhere));
  if (invert) return UnsupportedField("pre_tokenizer Split.invert", "true");
  const Json* pattern = FindField(step, "pattern");
  if (pattern == nullptr || FindField(*pattern, "Regex") == nullptr) {
    return UnsupportedField("pre_tokenizer Split.pattern", "anything but a Regex");
  }
  return RequiredString(*pattern, "Regex", kWhere);
}

absl::StatusOr<std::string> DigitsPattern(const Json& step) {
  MOE_ASSIGN_OR_RETURN(const bool individual, BoolField(step, "individual_digits", false, "pre_tokenizer Digits"));
  return std::string(individual ? "\\p{N}" : "\\p{N}+");
}

absl::Status ParsePreTokenizer(const Json& file, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "pre_tokenizer";
  MOE_ASSIGN_OR_RETURN(const auto steps, Flatten(FindField(file, "pre_tokenizer"), "pretokenizers", kWhere));
  bool byte_level = false;
  for (const Json* step : steps) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", kWhere));
    if (byte_level) return UnsupportedField("pre_tokenizer.type", Concat(type, " after ByteLevel"));
    if (type == "Split") {
      MOE_ASSIGN_OR_RETURN(std::string pattern, SplitPattern(*step));
      spec->split_patterns.push_back(std::move(pattern));
    } else if (type == "Digits") {
      MOE_ASSIGN_OR_RETURN(std::string pattern, DigitsPattern(*step));
      spec->split_patterns.push_back(std::move(pattern));
    } else if (type == "ByteLevel") {
      MOE_ASSIGN_OR_RETURN(const bool add_space, BoolField(*step, "add_prefix_space", true, kWhere));
      if (add_space) return UnsupportedField("pre_tokenizer ByteLevel.add_prefix_space", "true");
      MOE_ASSIGN_OR_RETURN(const bool use_regex, BoolField(*step, "use_regex", true, kWhere));
      if (use_regex) spec->split_patterns.emplace_back(kGpt2Pattern);
      byte_level = true;
    } else {
      return UnsupportedField("pre_tokenizer.type", type);
    }
  }
  if (!byte_level) return UnsupportedField("pre_tokenizer", "anything that does not end in ByteLevel");
  return absl::OkStatus();
}

absl::Status AppendSpecialToken(const Json& processor, const std::string& name, std::vector<int32_t>* ids) {
  const Json* tokens = FindField(processor, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : FindField(*tokens, name.c_str());
  const std::string where = Concat("post_processor TemplateProcessing.special_tokens['", name, "']");
  if (token == nullptr) return absl::InvalidArgumentError(where + ": missing");
  MOE_ASSIGN_OR_RETURN(const Json* values, RequiredArray(*token, "ids", where));
  for (const Json& value : *values) {
    MOE_ASSIGN_OR_RETURN(const int32_t id, TokenIdValue(value, where));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

// "single" is a list of {"SpecialToken": {"id": name}} around one {"Sequence": {"id": "A"}}.
absl::Status ParseTemplate(const Json& processor, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  MOE_ASSIGN_OR_RETURN(const Json* items, RequiredArray(processor, "single", kWhere));
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  bool text_seen = false;
  for (const Json& item : *items) {
    if (const Json* special = FindField(item, "SpecialToken")) {
      MOE_ASSIGN_OR_RETURN(const std::string name, RequiredString(*special, "id", kWhere));
      MOE_RETURN_IF_ERROR(AppendSpecialToken(processor, name, text_seen ? &after : &before));
    } else if (const Json* sequence = FindField(item, "Sequence"); sequence != nullptr && !text_seen) {
      MOE_ASSIGN_OR_RETURN(const std::string name, RequiredString(*sequence, "id", kWhere));
      if (name != "A") return UnsupportedField("post_processor TemplateProcessing.single", name);
      text_seen = true;
    } else {
      return absl::InvalidArgumentError(
          Concat(kWhere, ": field 'single' must hold SpecialToken items around one Sequence"));
    }
  }
  if (!text_seen) return absl::InvalidArgumentError(Concat(kWhere, ": field 'single' has no Sequence"));
  spec->prefix.insert(spec->prefix.begin(), before.begin(), before.end());
  spec->suffix.insert(spec->suffix.end(), after.begin(), after.end());
  return absl::OkStatus();
}

absl::Status ParsePostProcessor(const Json& file, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "post_processor";
  MOE_ASSIGN_OR_RETURN(const auto steps, Flatten(FindField(file, "post_processor"), "processors", kWhere));
  for (const Json* step : steps) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", kWhere));
    if (type == "TemplateProcessing") {
      MOE_RETURN_IF_ERROR(ParseTemplate(*step, spec));
    } else if (type != "ByteLevel") {  // ByteLevel only changes offsets
      return UnsupportedField("post_processor.type", type);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDecoder(const Json& file) {
  MOE_ASSIGN_OR_RETURN(const auto steps, Flatten(FindField(file, "decoder"), "decoders", "decoder"));
  for (const Json* step : steps) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", "decoder"));
    if (type != "ByteLevel") return UnsupportedField("decoder.type", type);
  }
  if (steps.empty()) return UnsupportedField("decoder", "anything but ByteLevel");
  return absl::OkStatus();
}

}  // namespace

absl::Status UnsupportedField(std::string_view field, std::string_view value) {
  return absl::UnimplementedError(Concat("field '", field, "': ", value,
                                         " is not supported; only byte-level BPE tokenizers without "
                                         "normalization are"));
}

absl::Status ParsePipeline(const Json& file, TokenizerSpec* spec) {
  MOE_RETURN_IF_ERROR(CheckNormalizer(file));
  MOE_RETURN_IF_ERROR(ParsePreTokenizer(file, spec));
  MOE_RETURN_IF_ERROR(ParsePostProcessor(file, spec));
  return CheckDecoder(file);
}

}  // namespace moestro::text
