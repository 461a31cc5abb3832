// Checked reads from parsed JSON, only for the parsers of this folder. `where` names the object in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace moestro::text {

using Json = nlohmann::json;

// The member, or null if it is absent, JSON null, or `object` is not an object.
const Json* FindField(const Json& object, const char* key);

// INVALID_ARGUMENT if a member is missing or of another type. These two return `fallback` for absent or null members.
absl::StatusOr<bool> BoolField(const Json& object, const char* key, bool fallback, std::string_view where);
absl::StatusOr<std::string> StringField(const Json& object, const char* key, const std::string& fallback,
                                        std::string_view where);
absl::StatusOr<std::string> RequiredString(const Json& object, const char* key, std::string_view where);
absl::StatusOr<const Json*> RequiredArray(const Json& object, const char* key, std::string_view where);

// A token id: an integer in [0, 2^24). Real vocabularies have fewer than 2^20 tokens.
absl::StatusOr<int32_t> TokenIdValue(const Json& value, std::string_view where);

}  // namespace moestro::text
