// One JSON schema that says what two say together.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::text::grammar {

using Schema = nlohmann::ordered_json;  // properties keep their order

// INVALID_ARGUMENT "schema: <where>: <what>"; `where` is a JSON pointer such as "#/properties/name".
absl::Status SchemaError(std::string_view where, std::string_view what);

// A keyword that says nothing about the value, or holds schemas for others to refer to.
bool IsAnnotation(std::string_view keyword);
// Whether a schema has keywords, besides `except`, that are no annotations.
bool SaysMoreThan(const Schema& schema, std::string_view except);

// The steps (budget.h) of a copy.
int64_t StepsOf(const Schema& schema);

// What both objects say, for keywords that have an exact intersection; annotations are dropped. Neither has $ref or
// allOf. Takes some StepsOf both, and the logarithm of that for each value of an array.
absl::StatusOr<Schema> MergeSchemas(const Schema& a, const Schema& b, const std::string& where);

// The schema without one keyword.
Schema Without(const Schema& schema, std::string_view keyword);

}  // namespace moestro::text::grammar
