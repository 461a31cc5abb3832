#include "services/router/output/argument_types.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "services/router/output/call_parser.h"

namespace moestro::router {
namespace {

using nlohmann::json;

constexpr const char* kTypes[] = {"string", "number", "integer", "boolean", "null", "object", "array"};
constexpr unsigned kAny = (1u << std::size(kTypes)) - 1;
// Schemas that nest deeper, in anyOf, allow everything.
constexpr int kMaxDepth = 8;

unsigned Bit(const char* type) {
  const auto* found = std::ranges::find(kTypes, std::string_view(type));
  return found == std::end(kTypes) ? kAny : 1u << (found - std::begin(kTypes));
}

unsigned BitOfName(const json& name) {
  return name.is_string() ? Bit(name.get_ref<const std::string&>().c_str()) : kAny;
}

unsigned BitOfValue(std::string_view value) {
  switch (value[0]) {
    case '"':
      return Bit("string");
    case '{':
      return Bit("object");
    case '[':
      return Bit("array");
    case 't':
    case 'f':
      return Bit("boolean");
    case 'n':
      return Bit("null");
    default:
      // 4.0 is an integer for JSON Schema, 4.5 is none.
      return value.find_first_of(".eE") == std::string_view::npos ? Bit("integer") | Bit("number") : Bit("number");
  }
}

// The types that a schema allows, as bits.
unsigned AllowedTypes(const json& schema, int depth = 0) {
  if (!schema.is_object() || depth > kMaxDepth) return kAny;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (!type->is_array()) return BitOfName(*type);
    unsigned types = 0;
    for (const json& name : *type) types |= BitOfName(name);
    return types;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto choices = schema.find(key);
    if (choices == schema.end() || !choices->is_array()) continue;
    unsigned types = 0;
    for (const json& choice : *choices) types |= AllowedTypes(choice, depth + 1);
    return types;
  }
  const auto values = schema.find("enum");
  const auto is_string = [](const json& value) { return value.is_string(); };
  if (values != schema.end() && values->is_array() && std::ranges::all_of(*values, is_string)) return Bit("string");
  return kAny;
}

}  // namespace

bool AllowsStrings(const json& schema) { return (AllowedTypes(schema) & Bit("string")) != 0; }

std::string QuotedJson(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
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
  const json list = json::parse(tools.begin(), tools.end(), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return;
  static const json::json_pointer kName("/function/name");
  static const json::json_pointer kProperties("/function/parameters/properties");
  for (const json& tool : list) {
    if (!tool.contains(kName) || !tool[kName].is_string() || !tool.contains(kProperties)) continue;
    properties_[tool[kName].get_ref<const std::string&>()] = tool[kProperties];
  }
}

std::string ArgumentTypes::ToJson(const std::string& function, const std::string& argument,
                                  std::string_view text) const {
  unsigned types = kAny;
  if (const auto schemas = properties_.find(function); schemas != properties_.end() && schemas->is_object()) {
    if (const auto schema = schemas->find(argument); schema != schemas->end()) types = AllowedTypes(*schema);
  }
  if (types == Bit("string")) return QuotedJson(text);
  std::string value(Trimmed(text));
  const std::string lower = absl::AsciiStrToLower(value);
  if (lower == "true" || lower == "false" || lower == "null") value = lower;
  if (value == "None") value = "null";
  if (value.empty() || !json::accept(value)) return QuotedJson(text);
  return (BitOfValue(value) & types) != 0 ? value : QuotedJson(text);
}

}  // namespace moestro::router
