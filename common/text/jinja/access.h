// Members of values: attributes, items, slices and loop items.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

// object.name: the value under that key, or undefined. INVALID_ARGUMENT if `object` is undefined.
absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name, Budget& budget);

// object[index]: an item of a list or string (negative from the end), or the value under a key; otherwise undefined.
// INVALID_ARGUMENT if `object` is undefined.
absl::StatusOr<Value> GetItem(const Value& object, const Value& index, Budget& budget);

// object[start:stop:step] of a list or string; omitted parts are undefined or none.
absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step,
                               Budget& budget);

// The items of a list, the code points of a string, the keys of a dict; nothing for undefined. INVALID_ARGUMENT for
// values that cannot be iterated.
absl::StatusOr<std::vector<Value>> Items(const Value& value, Budget& budget);

// The number of items; empty for values without items. Undefined has 0.
std::optional<int64_t> Length(const Value& value);

// Keys and values of a dict as a list of pairs.
absl::StatusOr<Value> DictItems(const Dict& dict, Budget& budget);

}  // namespace moestro::text::jinja
