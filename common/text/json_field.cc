#include "common/text/json_field.h"

#include "common/text/concat.h"

namespace moestro::text {
namespace {

constexpr uint64_t kTokenIdLimit = uint64_t{1} << 24;

absl::Status WrongField(std::string_view where, const char* key, std::string_view expected) {
  return absl::InvalidArgumentError(Concat(where, ": field '", key, "' must be ", expected));
}

}  // namespace

const Json* FindField(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<bool> BoolField(const Json& object, const char* key, bool fallback, std::string_view where) {
  const Json* field = FindField(object, key);
  if (field == nullptr) return fallback;
  const bool* value = field->get_ptr<const bool*>();
  if (value == nullptr) return WrongField(where, key, "true or false");
  return *value;
}

absl::StatusOr<std::string> StringField(const Json& object, const char* key, const std::string& fallback,
                                        std::string_view where) {
  return FindField(object, key) == nullptr ? fallback : RequiredString(object, key, where);
}

absl::StatusOr<std::string> RequiredString(const Json& object, const char* key, std::string_view where) {
  const Json* field = FindField(object, key);
  const std::string* value = field == nullptr ? nullptr : field->get_ptr<const std::string*>();
  if (value == nullptr) return WrongField(where, key, "a string");
  return *value;
}

absl::StatusOr<const Json*> RequiredArray(const Json& object, const char* key, std::string_view where) {
  const Json* field = FindField(object, key);
  if (field == nullptr || !field->is_array()) return WrongField(where, key, "an array");
  return field;
}

absl::StatusOr<int32_t> TokenIdValue(const Json& value, std::string_view where) {
  const uint64_t* id = value.get_ptr<const uint64_t*>();
  if (id == nullptr || *id >= kTokenIdLimit) {
    return absl::InvalidArgumentError(Concat(where, ": a token id must be an integer from 0 to ", kTokenIdLimit - 1));
  }
  return static_cast<int32_t>(*id);
}

}  // namespace moestro::text
