#include "common/text/tokenizer_pipeline_json.h"

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/utf8.h"

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

// Published files replace a space by three bytes. Limits what a text may grow to.
constexpr size_t kMaxGrowth = 16;
constexpr size_t kMaxInserted = 64;  // bytes

// The literal "pattern" of a Replace, and its "content".
absl::StatusOr<NormalizerStep> ParseReplace(const Json& step, std::string_view where) {
  NormalizerStep replace = {NormalizerStep::Kind::kReplace};
  const Json* pattern = FindField(step, "pattern");
  if (pattern == nullptr || FindField(*pattern, "String") == nullptr) {
    return UnsupportedField(Concat(where, " Replace.pattern"), "anything but a String");
  }
  MOE_ASSIGN_OR_RETURN(replace.pattern, RequiredString(*pattern, "String", where));
  MOE_ASSIGN_OR_RETURN(replace.content, RequiredString(step, "content", where));
  for (const std::string& part : {replace.pattern, replace.content}) {
    if (!part.empty() && part.size() <= kMaxInserted) continue;
    return absl::InvalidArgumentError(
        Concat(where, " Replace: the fields 'pattern' and 'content' must have 1 to ", kMaxInserted, " bytes"));
  }
  return replace;
}

absl::Status ParseNormalizer(const Json& file, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "normalizer";
  MOE_ASSIGN_OR_RETURN(const auto parts, Flatten(FindField(file, "normalizer"), "normalizers", kWhere));
  size_t prepended = 0;
  for (const Json* part : parts) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*part, "type", kWhere));
    NormalizerStep step = {NormalizerStep::Kind::kNfc};
    if (type == "Prepend") {
      step.kind = NormalizerStep::Kind::kPrepend;
      MOE_ASSIGN_OR_RETURN(step.content, RequiredString(*part, "prepend", kWhere));
      prepended += step.content.size();
    } else if (type == "Replace") {
      MOE_ASSIGN_OR_RETURN(step, ParseReplace(*part, kWhere));
    } else if (type != "NFC") {
      return UnsupportedField("normalizer.type", type);
    }
    spec->normalizer.push_back(std::move(step));
    if (Normalizer(spec->normalizer).max_growth() > kMaxGrowth || prepended > kMaxInserted) {
      return absl::InvalidArgumentError(
          Concat(kWhere, ": a text may grow by a factor of ", kMaxGrowth, " and ", kMaxInserted, " bytes at most"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitStep> ParseSplit(const Json& step) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  SplitStep split;
  MOE_ASSIGN_OR_RETURN(const std::string behavior, RequiredString(step, "behavior", kWhere));
  MOE_ASSIGN_OR_RETURN(const bool invert, BoolField(step, "invert", false, kWhere));
  if (behavior == "Removed") {
    split.keeps = invert ? SplitKeeps::kMatches : SplitKeeps::kGaps;
  } else if (behavior != "Isolated") {
    return UnsupportedField("pre_tokenizer Split.behavior", behavior);
  }
  const Json* pattern = FindField(step, "pattern");
  if (pattern == nullptr || FindField(*pattern, "Regex") == nullptr) {
    return UnsupportedField("pre_tokenizer Split.pattern", "anything but a Regex");
  }
  MOE_ASSIGN_OR_RETURN(split.pattern, RequiredString(*pattern, "Regex", kWhere));
  return split;
}

absl::StatusOr<SplitStep> ParseDigits(const Json& step) {
  MOE_ASSIGN_OR_RETURN(const bool individual, BoolField(step, "individual_digits", false, "pre_tokenizer Digits"));
  return SplitStep{individual ? "\\p{N}" : "\\p{N}+"};
}

// Files that predate "prepend_scheme" say "add_prefix_space".
absl::StatusOr<Metaspace> ParseMetaspace(const Json& step) {
  constexpr std::string_view kWhere = "pre_tokenizer Metaspace";
  Metaspace metaspace;
  MOE_ASSIGN_OR_RETURN(metaspace.mark, RequiredString(step, "replacement", kWhere));
  if (metaspace.mark.empty() || metaspace.mark.size() != static_cast<size_t>(Utf8Length(metaspace.mark[0]))) {
    return absl::InvalidArgumentError(Concat(kWhere, ": field 'replacement' must be one character"));
  }
  MOE_ASSIGN_OR_RETURN(const bool adds, BoolField(step, "add_prefix_space", true, kWhere));
  MOE_ASSIGN_OR_RETURN(const std::string scheme,
                       StringField(step, "prepend_scheme", adds ? "always" : "never", kWhere));
  if (scheme == "first") {
    metaspace.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never") {
    metaspace.prepend = Metaspace::Prepend::kNever;
  } else if (scheme != "always") {
    return UnsupportedField("pre_tokenizer Metaspace.prepend_scheme", scheme);
  }
  MOE_ASSIGN_OR_RETURN(metaspace.split, BoolField(step, "split", true, kWhere));
  return metaspace;
}

absl::Status ParsePreTokenizer(const Json& file, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "pre_tokenizer";
  MOE_ASSIGN_OR_RETURN(const auto steps, Flatten(FindField(file, "pre_tokenizer"), "pretokenizers", kWhere));
  if (steps.empty()) {
    spec->spelling = Spelling::kText;
    return absl::OkStatus();
  }
  bool byte_level = false;
  for (const Json* step : steps) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", kWhere));
    if (type == "Metaspace" && steps.size() == 1) {
      MOE_ASSIGN_OR_RETURN(spec->metaspace, ParseMetaspace(*step));
      spec->spelling = Spelling::kText;
      return absl::OkStatus();
    }
    if (byte_level) return UnsupportedField("pre_tokenizer.type", Concat(type, " after ByteLevel"));
    if (type == "Split") {
      MOE_ASSIGN_OR_RETURN(SplitStep split, ParseSplit(*step));
      spec->splits.push_back(std::move(split));
    } else if (type == "Digits") {
      MOE_ASSIGN_OR_RETURN(SplitStep split, ParseDigits(*step));
      spec->splits.push_back(std::move(split));
    } else if (type == "ByteLevel") {
      MOE_ASSIGN_OR_RETURN(const bool add_space, BoolField(*step, "add_prefix_space", true, kWhere));
      if (add_space) return UnsupportedField("pre_tokenizer ByteLevel.add_prefix_space", "true");
      MOE_ASSIGN_OR_RETURN(const bool use_regex, BoolField(*step, "use_regex", true, kWhere));
      if (use_regex) spec->splits.push_back({std::string(kGpt2Pattern)});
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

absl::Status ParseStrip(const Json& step, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "decoder Strip";
  MOE_ASSIGN_OR_RETURN(const std::string content, RequiredString(step, "content", kWhere));
  if (content != " ") return UnsupportedField("decoder Strip.content", "anything but a space");
  int32_t counts[2] = {};
  const char* const keys[2] = {"start", "stop"};
  for (int i = 0; i < 2; ++i) {
    const Json* count = FindField(step, keys[i]);
    if (count == nullptr) return absl::InvalidArgumentError(Concat(kWhere, ": field '", keys[i], "' is missing"));
    const uint64_t* value = count->get_ptr<const uint64_t*>();
    if (value == nullptr || *value > kMaxInserted) {
      return absl::InvalidArgumentError(
          Concat(kWhere, ": field '", keys[i], "' must be an integer from 0 to ", kMaxInserted));
    }
    counts[i] = static_cast<int32_t>(*value);
  }
  if (counts[1] != 0) return UnsupportedField("decoder Strip.stop", "anything but 0");
  spec->stripped_spaces = counts[0];
  return absl::OkStatus();
}

// ByteLevel for that spelling. For text: Replace, ByteFallback, Fuse, and Strip if spaces are stripped at all.
absl::Status ParseDecoder(const Json& file, TokenizerSpec* spec) {
  MOE_ASSIGN_OR_RETURN(const auto steps, Flatten(FindField(file, "decoder"), "decoders", "decoder"));
  const bool is_text = spec->spelling == Spelling::kText;
  std::string types;
  for (const Json* step : steps) {
    MOE_ASSIGN_OR_RETURN(const std::string type, RequiredString(*step, "type", "decoder"));
    types += Concat(types.empty() ? "" : ", ", type);
    if (is_text && type == "Replace") {
      MOE_ASSIGN_OR_RETURN(NormalizerStep replace, ParseReplace(*step, "decoder"));
      spec->mark = std::move(replace.pattern);
      spec->mark_text = std::move(replace.content);
    } else if (is_text && type == "Strip") {
      MOE_RETURN_IF_ERROR(ParseStrip(*step, spec));
    }
  }
  constexpr std::string_view kOfText = "Replace, ByteFallback, Fuse";
  const bool known = is_text ? types == kOfText || types == Concat(kOfText, ", Strip") : types == "ByteLevel";
  if (known) return absl::OkStatus();
  return UnsupportedField("decoder", Concat("'", types, "' instead of '", is_text ? kOfText : "ByteLevel", "'"));
}

}  // namespace

absl::Status UnsupportedField(std::string_view field, std::string_view value) {
  return absl::UnimplementedError(Concat("field '", field, "': ", value,
                                         " is not supported; byte-level BPE, BPE over text with "
                                         "byte_fallback, and tiktoken's ranks are"));
}

absl::Status ParsePipeline(const Json& file, TokenizerSpec* spec) {
  MOE_RETURN_IF_ERROR(ParseNormalizer(file, spec));
  MOE_RETURN_IF_ERROR(ParsePreTokenizer(file, spec));
  MOE_RETURN_IF_ERROR(ParsePostProcessor(file, spec));
  return ParseDecoder(file, spec);
}

}  // namespace moestro::text
