// Makes JSON of arguments that a model writes as bare text.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::router {

// The names of the functions in `tools`, as in ParserOptions.
std::vector<std::string> OfferedNames(std::string_view tools);

class ArgumentTypes {  // immutable, thread-safe
 public:
  // `tools`: as in ParserOptions. A schema that ParseOrderedJsonObject() refuses counts as absent.
  explicit ArgumentTypes(std::string_view tools);

  // The properties that the function's schema names; none for a function that is not offered.
  std::vector<std::string> PropertiesOf(const std::string& function) const;

  // JSON text of one argument. Where the function's schema allows strings only, it is a string. Otherwise it is the
  // JSON that the text is, and a string if it is none or has a type that the schema excludes. Python's spellings of
  // true, false and null count, because models write them; where the schema wants an object or array, so do those of
  // these.
  std::string ToJson(const std::string& function, const std::string& argument, std::string_view text) const;

 private:
  std::map<std::string, nlohmann::ordered_json> schemas_;  // by function: of its parameters
};

// Whether the schema of one argument allows strings, or does not say. `root`: the schema of all arguments, in which
// references lead.
bool AllowsStrings(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace moestro::router
