#include "services/router/output/argument_types.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "common/text/grammar/schema_reference.h"
#include "common/text/json/json.h"
#include "common/text/json/raw_field.h"
#include "services/router/output/call_parser.h"
#include "services/router/output/object_text.h"
#include "services/router/output/python_literal.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Sets of types.
enum Type : unsigned {
  kNone = 0,
  kString = 1,
  kInteger = 2,
  kFraction = 4,  // written with a point or an exponent
  kNumber = kInteger | kFraction,
  kBoolean = 8,
  kNull = 16,
  kObject = 32,
  kArray = 64,
  kAny = 127
};

struct NamedType {
  const char* name;
  Type type;
};
constexpr NamedType kTypes[] = {{"string", kString}, {"number", kNumber}, {"integer", kInteger}, {"boolean", kBoolean},
                                {"null", kNull},     {"object", kObject}, {"array", kArray}};

unsigned TypeOfName(const ordered_json& name) {
  if (!name.is_string()) return kAny;
  const auto* found = std::ranges::find(kTypes, std::string_view(name.get_ref<const std::string&>()), &NamedType::name);
  return found == std::end(kTypes) ? kAny : found->type;
}

unsigned TypeOfText(std::string_view json) {
  switch (json[0]) {
    case '"':
      return kString;
    case '{':
      return kObject;
    case '[':
      return kArray;
    case 't':
    case 'f':
      return kBoolean;
    case 'n':
      return kNull;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? kInteger : kFraction;
  }
}

// 4 may be written as 4.0 where a schema lists the number.
unsigned TypeOfListed(const ordered_json& value) {
  switch (value.type()) {
    case ordered_json::value_t::string:
      return kString;
    case ordered_json::value_t::object:
      return kObject;
    case ordered_json::value_t::array:
      return kArray;
    case ordered_json::value_t::boolean:
      return kBoolean;
    case ordered_json::value_t::null:
      return kNull;
    default:
      return kNumber;
  }
}

// Finds the types that a schema allows. A schema that consists of more parts than this allows everything: references
// may go round in a circle, and each to several others. To follow one takes as long as some parts.
constexpr size_t kMostParts = 1000;
constexpr size_t kPartsOfReference = 10;

class TypeFinder {
 public:
  explicit TypeFinder(const ordered_json& root) : root_(root) {}

  unsigned Find(const ordered_json& schema) {
    if (!schema.is_object() || ++parts_ > kMostParts) return kAny;
    unsigned types = kAny;
    const auto type = [](const ordered_json& name) { return TypeOfName(name); };
    const auto part = [this](const ordered_json& choice) { return Find(choice); };
    for (const auto& [key, value] : schema.items()) {
      if (key == "type") types &= value.is_array() ? Union(value, type) : TypeOfName(value);
      if (key == "const") types &= TypeOfListed(value);
      if (key == "enum") types &= Union(value, TypeOfListed);
      if (key == "anyOf" || key == "oneOf") types &= Union(value, part);
      if (key == "$ref") types &= FindReferred(value);
      if (key != "allOf" || !value.is_array()) continue;
      for (const ordered_json& each : value) types &= Find(each);
    }
    return types;
  }

 private:
  template <typename TypesOf>
  static unsigned Union(const ordered_json& list, TypesOf types_of) {
    if (!list.is_array()) return kAny;
    unsigned types = kNone;
    for (const ordered_json& member : list) types |= types_of(member);
    return types;
  }

  unsigned FindReferred(const ordered_json& reference) {
    if (!reference.is_string()) return kAny;
    const std::string& pointer = reference.get_ref<const std::string&>();
    parts_ += std::max(kPartsOfReference, pointer.size());
    if (parts_ > kMostParts) return kAny;
    const auto target = text::grammar::FindTarget(root_, pointer, /*where=*/"");
    return target.ok() ? Find(**target) : kAny;
  }

  const ordered_json& root_;
  size_t parts_ = 0;
};

}  // namespace

bool AllowsStrings(const ordered_json& schema, const ordered_json& root) {
  return (TypeFinder(root).Find(schema) & kString) != 0;
}

std::vector<std::string> OfferedNames(std::string_view tools) {
  const json list = json::parse(tools.begin(), tools.end(), nullptr, /*allow_exceptions=*/false);
  static const json::json_pointer kName("/function/name");
  std::vector<std::string> names;
  for (const json& tool : list.is_array() ? list : json::array()) {
    if (tool.contains(kName) && tool[kName].is_string()) names.push_back(tool[kName].get<std::string>());
  }
  return names;
}

ArgumentTypes::ArgumentTypes(std::string_view tools) {
  if (!IsJson(tools)) return;
  const auto field = [](std::string_view object, std::string_view key) {
    return object.starts_with('{') ? text::RawField(object, key) : std::string_view();
  };
  for (const std::string_view tool : text::RawElements(tools)) {
    const std::string_view function = field(tool, "function");
    const json name = json::parse(field(function, "name"), nullptr, /*allow_exceptions=*/false);
    auto schema = text::ParseOrderedJsonObject(field(function, "parameters"), "parameters");
    if (name.is_string() && schema.ok()) schemas_[name.get<std::string>()] = *std::move(schema);
  }
}

std::vector<std::string> ArgumentTypes::PropertiesOf(const std::string& function) const {
  std::vector<std::string> names;
  const auto schema = schemas_.find(function);
  if (schema == schemas_.end() || !schema->second.is_object()) return names;
  const auto properties = schema->second.find("properties");
  if (properties == schema->second.end() || !properties->is_object()) return names;
  for (const auto& [name, property] : properties->items()) names.push_back(name);
  return names;
}

std::string ArgumentTypes::ToJson(const std::string& function, const std::string& argument,
                                  std::string_view text) const {
  unsigned types = kAny;
  if (const auto root = schemas_.find(function); root != schemas_.end()) {
    const ordered_json::json_pointer property = ordered_json::json_pointer("/properties") / argument;
    if (root->second.contains(property)) types = TypeFinder(root->second).Find(root->second[property]);
  }
  if (types == kString) return QuotedJson(text);
  std::string value(Trimmed(text));
  const std::string lower = absl::AsciiStrToLower(value);
  if (lower == "true" || lower == "false" || lower == "null") value = lower;
  if (value == "None") value = "null";
  if (value.empty()) return QuotedJson(text);
  if (IsJson(value)) return (TypeOfText(value) & types) != 0 ? value : QuotedJson(text);
  if (types != kAny && (types & (kObject | kArray)) != 0) {
    if (const std::optional<std::string> literal = JsonOfPythonLiteral(value)) {
      if ((TypeOfText(*literal) & types) != 0) return *literal;
    }
  }
  return QuotedJson(text);
}

}  // namespace moestro::router
