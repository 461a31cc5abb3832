#include "common/text/json/json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/text/json/quoted.h"

namespace moestro::text {

using nlohmann::json;

namespace {

// Settings files nest three or four deep. At this depth, the JSON library's recursive functions are safe.
constexpr int kMaxDepth = 64;

template <typename Json>
absl::StatusOr<Json> ParseObject(std::string_view text, const std::string& label, size_t max_values,
                                 size_t max_members) {
  // The library takes a NUL byte for the end of the input and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": not valid JSON: contains a NUL byte"));
  }
  std::vector<absl::flat_hash_set<std::string>> keys;  // of the open objects
  std::string duplicate;
  bool too_deep = false, too_many_members = false;
  size_t values = 0;
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json& parsed) {
    if (event != Json::parse_event_t::object_end && event != Json::parse_event_t::array_end) ++values;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty() && values <= max_values) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      if (!keys.back().insert(key).second && duplicate.empty()) duplicate = Quoted(key);
      if (keys.back().size() > max_members) too_many_members = true;
    }
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth && values <= max_values && !too_many_members;  // others are dropped
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), watch);
    if (too_deep) return absl::InvalidArgumentError(absl::StrCat(label, ": nested deeper than ", kMaxDepth));
    if (values > max_values) {
      return absl::InvalidArgumentError(absl::StrCat(label, ": has more than ", max_values, " values"));
    }
    if (too_many_members) {
      return absl::InvalidArgumentError(absl::StrCat(label, ": an object has more than ", max_members, " members"));
    }
    if (!duplicate.empty()) return absl::InvalidArgumentError(absl::StrCat(label, ": duplicate key ", duplicate));
    if (!document.is_object()) return absl::InvalidArgumentError(absl::StrCat(label, ": not a JSON object"));
    return document;
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": not valid JSON: ", Printable(error.what())));
  }
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, const std::string& label, size_t max_values) {
  return ParseObject<json>(text, label, max_values, SIZE_MAX);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJsonObject(std::string_view text, const std::string& label) {
  return ParseObject<nlohmann::ordered_json>(text, label, SIZE_MAX, kMaxOrderedMembers);
}

std::string Describe(const json& value) {
  if (value.is_string()) return absl::StrCat("\"", Printable(value.get_ref<const std::string&>()), "\"");
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return Printable(value.dump());
}

void JsonFields::Record(absl::StatusCode code, const char* key, absl::string_view message) {
  if (status_->ok()) *status_ = absl::Status(code, absl::StrCat(label_, IsPath() ? "" : ": ", key, ": ", message));
}

void JsonFields::Fail(const char* key, absl::string_view message) {
  Record(absl::StatusCode::kInvalidArgument, key, message);
}

void JsonFields::Unsupported(const char* key, absl::string_view message) {
  Record(absl::StatusCode::kUnimplemented, key, message);
}

bool JsonFields::Has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

int64_t JsonFields::Int(const char* key, int64_t min, int64_t max) {
  if (!Has(key)) {
    Fail(key, "missing");
    return min;
  }
  const json& value = object_[key];
  const double as_double = value.is_number() ? value.get<double>() : 0;
  if (!value.is_number() || as_double != std::trunc(as_double)) {
    Fail(key, absl::StrCat(Describe(value), " is not an integer"));
    return min;
  }
  // These values have no exact int64_t.
  const bool huge = std::abs(as_double) >= 0x1p63;
  const int64_t number = huge ? INT64_MAX : value.get<int64_t>();
  if (huge || number < min || number > max) {
    Fail(key, absl::StrCat(Describe(value), " is out of range [", min, ", ", max, "]"));
    return min;
  }
  return number;
}

int64_t JsonFields::IntOr(const char* key, int64_t fallback, int64_t min, int64_t max) {
  return Has(key) ? Int(key, min, max) : fallback;
}

double JsonFields::Number(const char* key, double min, double max) {
  if (!Has(key)) {
    Fail(key, "missing");
    return min;
  }
  const json& value = object_[key];
  if (!value.is_number()) {
    Fail(key, absl::StrCat(Describe(value), " is not a number"));
    return min;
  }
  const double number = value.get<double>();
  if (!(number >= min && number <= max)) {
    Fail(key, absl::StrCat(Describe(value), " is out of range [", min, ", ", max, "]"));
    return min;
  }
  return number;
}

double JsonFields::NumberOr(const char* key, double fallback, double min, double max) {
  return Has(key) ? Number(key, min, max) : fallback;
}

bool JsonFields::BoolOr(const char* key, bool fallback) {
  if (!Has(key)) return fallback;
  const json& value = object_[key];
  if (value.is_boolean()) return value.get<bool>();
  Fail(key, absl::StrCat(Describe(value), " is not true or false"));
  return fallback;
}

std::string JsonFields::StringOr(const char* key, std::string fallback) {
  if (!Has(key)) return fallback;
  const json& value = object_[key];
  if (value.is_string()) return value.get<std::string>();
  Fail(key, absl::StrCat(Describe(value), " is not a string"));
  return fallback;
}

void JsonFields::OneOf(const char* key, std::span<const char* const> supported) {
  if (!Has(key)) return;
  const json& value = object_[key];
  const bool known = value.is_string() && std::any_of(supported.begin(), supported.end(), [&](const char* candidate) {
                       return value.get_ref<const std::string&>() == candidate;
                     });
  if (!known) {
    Unsupported(key,
                absl::StrCat(Describe(value), " is not supported (supported: ", absl::StrJoin(supported, ", "), ")"));
  }
}

void JsonFields::OnlyBool(const char* key, bool supported) {
  if (BoolOr(key, supported) != supported) {
    Unsupported(key, absl::StrCat(Describe(object_[key]), " is not supported"));
  }
}

std::string JsonFields::LabelOf(absl::string_view key) const {
  return IsPath() ? absl::StrCat(label_, key, ".") : absl::StrCat(label_, ": ", key);
}

JsonFields JsonFields::Sub(const char* key) {
  static const json kEmpty = json::object();
  const bool present = Has(key);
  if (present && object_[key].is_object()) return JsonFields(object_[key], LabelOf(key), status_);
  if (present) Fail(key, absl::StrCat(Describe(object_[key]), " is not an object"));
  return JsonFields(kEmpty, LabelOf(key), status_);
}

void JsonFields::ForEach(const char* key, absl::FunctionRef<void(JsonFields&)> read) {
  if (!Has(key)) return;
  const json& list = object_[key];
  if (!list.is_array()) return Fail(key, absl::StrCat(Describe(list), " is not a list"));
  for (size_t i = 0; i < list.size() && ok(); ++i) {
    const std::string place = absl::StrCat(key, "[", i, "]");
    if (!list[i].is_object()) return Fail(place.c_str(), absl::StrCat(Describe(list[i]), " is not an object"));
    JsonFields element(list[i], LabelOf(place), status_);
    read(element);
  }
}

}  // namespace moestro::text
