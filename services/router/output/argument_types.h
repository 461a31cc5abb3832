// Makes JSON of arguments that a model writes as bare text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::router {

// The names of the functions in `tools`, as in ParserOptions.
std::vector<std::string> OfferedNames(std::string_view tools);

class ArgumentTypes {  // immutable, thread-safe
 public:
  explicit ArgumentTypes(std::string_view tools);  // as in ParserOptions

  // JSON text of one argument. Where the function's schema allows strings only, it is a string. Otherwise it is the
  // JSON that the text is, and a string if it is none or has a type that the schema excludes. Python's spellings of
  // true, false and null count, because models write them.
  std::string ToJson(const std::string& function, const std::string& argument, std::string_view text) const;

 private:
  nlohmann::json properties_;  // by function, by argument: its schema
};

// Whether a schema of one argument allows strings, or does not say.
bool AllowsStrings(const nlohmann::json& schema);

std::string QuotedJson(std::string_view text);

}  // namespace moestro::router
