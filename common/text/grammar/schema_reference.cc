#include "common/text/grammar/schema_reference.h"

#include <algorithm>
#include <string_view>

#include "common/text/concat.h"
#include "common/text/json/quoted.h"

namespace moestro::text::grammar {
namespace {

// Of a reference: %24 becomes $, ~1 becomes /.
std::string UnescapePart(std::string_view part) {
  std::string plain;
  for (size_t i = 0; i < part.size();) {
    const auto is = [&](std::string_view escape) { return part.substr(i, escape.size()) == escape; };
    const auto add = [&](char c, size_t bytes) {
      plain += c;
      i += bytes;
    };
    if (is("%24")) {
      add('$', 3);
    } else if (is("%20")) {
      add(' ', 3);
    } else if (is("~1")) {
      add('/', 2);
    } else if (is("~0")) {
      add('~', 2);
    } else {
      add(part[i], 1);
    }
  }
  return plain;
}

}  // namespace

absl::StatusOr<const Schema*> FindTarget(const Schema& root, const std::string& text, const std::string& where) {
  if (text == "#") return &root;
  if (!text.starts_with("#/")) {
    return SchemaError(where, Concat("'$ref' ", Quoted(text), ": only references into the schema itself (#/...) work"));
  }
  const Schema* at = &root;
  for (size_t begin = 2; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string part = UnescapePart(std::string_view(text).substr(begin, end - begin));
    const bool is_index =
        at->is_array() && !part.empty() && part.size() < 6 && part.find_first_not_of("0123456789") == std::string::npos;
    if (at->is_object() && at->contains(part)) {
      at = &(*at)[part];
    } else if (is_index && static_cast<size_t>(std::stoi(part)) < at->size()) {
      at = &(*at)[std::stoi(part)];
    } else {
      return SchemaError(where, Concat("'$ref' ", Quoted(text), " is not in the schema"));
    }
    begin = end + 1;
  }
  return at;
}

}  // namespace moestro::text::grammar
