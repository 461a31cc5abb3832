// Strict JSON documents, and typed access to their fields.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace moestro::text {

// Parses one JSON object. INVALID_ARGUMENT, with `label` (a file name) and the position, for syntax errors, invalid
// UTF-8, trailing text, nesting deeper than 64, duplicate keys in any object, more than `max_values` values and keys,
// or another top-level type. A value takes up to fifty times as much memory as its text.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& label,
                                               size_t max_values = SIZE_MAX);

// The same, with the members of every object in the order of the text: at most kMaxOrderedMembers, because such an
// object finds a name by looking at all of them.
inline constexpr size_t kMaxOrderedMembers = 4096;
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJsonObject(std::string_view text, const std::string& label);

// Reads fields of an object and keeps the first error in a status that several readers share. So a parser is a list of
// reads followed by one check. After an error, every read still returns a value within its bounds. A null field counts
// as absent.
class JsonFields {
 public:
  // Every message begins with `label`: "config.json". If it is empty or ends in a dot, the field's path begins the
  // message: "messages[3].role: ...". `object` and `status` must outlive this.
  JsonFields(const nlohmann::json& object, std::string label, absl::Status* status)
      : object_(object), label_(std::move(label)), status_(status) {}

  bool Has(const char* key) const;

  // Bounds are inclusive. The forms with a fallback return it for an absent field. An integer may be written as 4096.0.
  int64_t Int(const char* key, int64_t min, int64_t max);
  int64_t IntOr(const char* key, int64_t fallback, int64_t min, int64_t max);
  double Number(const char* key, double min, double max);
  double NumberOr(const char* key, double fallback, double min, double max);
  bool BoolOr(const char* key, bool fallback);
  std::string StringOr(const char* key, std::string fallback);

  // UNIMPLEMENTED unless the field is absent or has one of the `supported` values.
  void OneOf(const char* key, std::span<const char* const> supported);
  void OneOf(const char* key, std::initializer_list<const char*> supported) { OneOf(key, std::span(supported)); }
  // UNIMPLEMENTED unless the field is absent or has this value.
  void OnlyBool(const char* key, bool supported);

  // The object in a field; empty if the field is absent or (an error) holds another type.
  JsonFields Sub(const char* key);
  // Calls `read` for each object of the list in a field, in order, until an error. An error: the field holds another
  // type, or the list something else.
  void ForEach(const char* key, absl::FunctionRef<void(JsonFields&)> read);

  void Fail(const char* key, absl::string_view message);         // INVALID_ARGUMENT
  void Unsupported(const char* key, absl::string_view message);  // UNIMPLEMENTED

  const nlohmann::json& object() const { return object_; }
  bool ok() const { return status_->ok(); }

 private:
  bool IsPath() const { return label_.empty() || label_.back() == '.'; }
  std::string LabelOf(absl::string_view key) const;
  void Record(absl::StatusCode code, const char* key, absl::string_view message);

  const nlohmann::json& object_;
  std::string label_;
  absl::Status* status_;
};

// A value for a message: scalars verbatim, clipped; otherwise "an array" or "an object".
std::string Describe(const nlohmann::json& value);

}  // namespace moestro::text
