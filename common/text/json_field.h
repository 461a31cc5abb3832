// Checked reads from parsed JSON, for the parsers of this folder only. `where` names the object in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace moestro {

using Json = nlohmann::json;

// The member, or null if it is absent, JSON null, or `object` is not an object.
const Json* FindField(const Json& object, const char* key);

// INVALID_ARGUMENT where a member is missing or of another type; absent or null members of these two are `fallback`.
absl::StatusOr<bool> BoolField(const Json& object, const char* key, bool fallback, std::string_view where);
absl::StatusOr<std::string> StringField(const Json& object, const char* key, const std::string& fallback,
                                        std::string_view where);
absl::StatusOr<std::string> RequiredString(const Json& object, const char* key, std::string_view where);
absl::StatusOr<const Json*> RequiredArray(const Json& object, const char* key, std::string_view where);

// A token id: an integer in [0, 2^24). Real vocabularies have fewer than 2^20 tokens.
absl::StatusOr<int32_t> TokenIdValue(const Json& value, std::string_view where);

}  // namespace moestro
