// The keywords of JSON Schema: which are enforced, and which bind nothing as they are written.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/text/grammar/schema_merge.h"

namespace moestro::text::grammar {

struct Keyword {
  std::string_view name;
  std::string_view type;  // of the values that it is about; "": of all
};
// Those that are enforced.
std::span<const Keyword> Keywords();

// The value of a keyword. Null in place of it is none, as writers of optional fields have it; only `const` may be null.
const Schema* Find(const Schema& schema, std::string_view keyword);
inline bool Has(const Schema& schema, std::string_view keyword) { return Find(schema, keyword) != nullptr; }

// Whether it allows no value: false, or `not` with a schema that allows all.
bool IsNever(const Schema& schema);

// INVALID_ARGUMENT names a keyword that binds the value and cannot be enforced. A word that JSON Schema does not have
// is an annotation, as JSON Schema demands.
absl::Status CheckKeywords(const Schema& schema, const std::string& where);

// For messages: of long names and deep places the beginning will do.
std::string Under(const std::string& where, std::string_view keyword);

}  // namespace moestro::text::grammar
