// config.json as its several writers spell it, brought to one form for the readers of families.
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr char kTextConfig[] = "text_config";
constexpr char kParameters[] = "rope_parameters";
constexpr char kScaling[] = "rope_scaling";

// Names of one setting. Publishers and versions of the reference library prefer different ones.
constexpr std::initializer_list<const char*> kExpertCounts = {"n_routed_experts", "num_experts", "num_local_experts"};
constexpr std::initializer_list<const char*> kDTypes = {"torch_dtype", "dtype"};
constexpr std::initializer_list<const char*> kQuantizations = {"quantization_config", "compression_config"};
// Settings of all that a wrapper around a text model may keep beside text_config.
constexpr const char* kWrapperKeys[] = {"quantization_config", "compression_config", "tie_word_embeddings",
                                        "torch_dtype", "dtype"};

// Null if the setting is absent or null.
const json* Present(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json* PresentObject(const json& object, const char* key) {
  const json* const value = Present(object, key);
  return value != nullptr && value->is_object() ? value : nullptr;
}

absl::Status Contradiction(const std::string& label, absl::string_view one, const json& value, absl::string_view other,
                           const json& other_value) {
  return absl::InvalidArgumentError(absl::StrCat(label, ": ", one, ": ", text::Describe(value), " contradicts ", other,
                                                 " = ", text::Describe(other_value), "; keep the right one"));
}

// The value of those names that are there; null if none is.
absl::StatusOr<json> OneValue(const json& config, std::initializer_list<const char*> names, const std::string& label) {
  const char* first = nullptr;
  for (const char* const name : names) {
    const json* const value = Present(config, name);
    if (value == nullptr) continue;
    if (first == nullptr) first = name;
    if (*value != config[first]) return Contradiction(label, name, *value, first, config[first]);
  }
  return first == nullptr ? json() : config[first];
}

// `key` may stand beside the rope settings (config) or in them. Afterwards it stands beside them, if anywhere.
absl::Status LiftFromRope(json& config, const char* holder, const char* key, const std::string& label) {
  const json* const rope = PresentObject(config, holder);
  const json* const inner = rope == nullptr ? nullptr : Present(*rope, key);
  if (inner == nullptr) return absl::OkStatus();
  const json value = *inner;
  if (const json* const outer = Present(config, key); outer != nullptr && *outer != value) {
    return Contradiction(label, absl::StrCat(holder, ": ", key), value, key, *outer);
  }
  config[key] = value;
  return absl::OkStatus();
}

// Old files have rope_scaling, new ones rope_parameters; a file that was saved again may have both, which must agree.
absl::Status CheckBothRopes(const json& config, const std::string& label) {
  const json* const parameters = PresentObject(config, kParameters);
  if (parameters == nullptr) return absl::OkStatus();
  for (const auto& [key, value] : parameters->items()) {
    if (!value.is_object()) continue;
    return absl::UnimplementedError(absl::StrCat(label, ": ", kParameters, ": ", text::Quoted(key),
                                                 " has settings of its own; one rotation for all layers is supported"));
  }
  const json* const scaling = PresentObject(config, kScaling);
  if (scaling == nullptr) return absl::OkStatus();
  for (const auto& [key, value] : scaling->items()) {
    if (value.is_null()) continue;
    const json* other = Present(*parameters, key.c_str());
    if (other == nullptr && key == "type") other = Present(*parameters, "rope_type");
    if (other == nullptr && key == "rope_type") other = Present(*parameters, "type");
    if (other != nullptr && *other == value) continue;
    const std::string field = absl::StrCat(kScaling, ": ", text::Printable(key));
    return Contradiction(label, field, value, kParameters, other == nullptr ? json() : *other);
  }
  return absl::OkStatus();
}

// The text model of a wrapper (for images, say), with those of the wrapper's settings that are of both.
absl::StatusOr<ConfigDocument> Unwrap(json document) {
  constexpr char kLabel[] = "config.json";
  const json* const inner = Present(document, kTextConfig);
  if (inner == nullptr) return ConfigDocument{std::move(document), kLabel};
  const std::string label = absl::StrCat(kLabel, ": ", kTextConfig);
  if (!inner->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": ", text::Describe(*inner), " is not an object"));
  }
  json text = *inner;
  for (const char* const key : kWrapperKeys) {
    const json* const outer = Present(document, key);
    if (outer == nullptr) continue;
    const json* const own = Present(text, key);
    if (own != nullptr && *own != *outer) return Contradiction(label, key, *own, "the same field outside", *outer);
    text[key] = *outer;
  }
  return ConfigDocument{std::move(text), label};
}

}  // namespace

absl::StatusOr<ConfigDocument> InOneSpelling(json document) {
  MOE_ASSIGN_OR_RETURN(ConfigDocument config, Unwrap(std::move(document)));
  MOE_RETURN_IF_ERROR(OneValue(config.json, kDTypes, config.label).status());
  MOE_ASSIGN_OR_RETURN(const json experts, OneValue(config.json, kExpertCounts, config.label));
  for (const char* const name : kExpertCounts) config.json[name] = experts;
  MOE_ASSIGN_OR_RETURN(json quantization, OneValue(config.json, kQuantizations, config.label));
  if (quantization.is_object() && quantization.value("quant_method", json()) == "compressed_tensors") {
    quantization["quant_method"] = "compressed-tensors";
  }
  config.json["quantization_config"] = std::move(quantization);
  for (const char* const holder : {kParameters, kScaling}) {
    for (const char* const key : {"rope_theta", "partial_rotary_factor"}) {
      MOE_RETURN_IF_ERROR(LiftFromRope(config.json, holder, key, config.label));
    }
  }
  MOE_RETURN_IF_ERROR(CheckBothRopes(config.json, config.label));
  return config;
}

}  // namespace moestro::checkpoint
