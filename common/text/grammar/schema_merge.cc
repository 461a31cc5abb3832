#include "common/text/grammar/schema_merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/json/quoted.h"

namespace moestro::text::grammar {
namespace {

bool IsOneOf(std::string_view keyword, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), keyword) != names.end();
}

// As an array.
Schema Types(const Schema& type) { return type.is_array() ? type : Schema::array({type}); }

bool Includes(const Schema& types, const Schema& type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

absl::StatusOr<Schema> MergeTypes(const Schema& a, const Schema& b, const std::string& where) {
  const Schema left = Types(a), right = Types(b);
  Schema common = Schema::array();
  for (const Schema& type : left) {
    if (Includes(right, type) || (type == "integer" && Includes(right, "number"))) common.push_back(type);
    if (type == "number" && !Includes(right, "number") && Includes(right, "integer")) common.push_back("integer");
  }
  if (common.empty()) return SchemaError(where, "no value has both types");
  return common;
}

// Both schemas as one: an allOf, flat and without repetitions.
Schema Both(const Schema& a, const Schema& b) {
  const bool is_list = a.is_object() && a.size() == 1 && a.contains("allOf") && a["allOf"].is_array();
  Schema parts = is_list ? a["allOf"] : Schema::array({a});
  if (!Includes(parts, b)) parts.push_back(b);
  return {{"allOf", std::move(parts)}};
}

// All texts of a keyword that every part has: a list, which no schema has there by itself.
Schema Every(const Schema& a, const Schema& b) {
  Schema all = a.is_array() ? a : Schema::array({a});
  for (const Schema& one : b.is_array() ? b : Schema::array({b})) {
    if (!Includes(all, one)) all.push_back(one);
  }
  return all;
}

bool IsMultiple(const Schema& a, const Schema& b) {
  return a.is_number() && b.is_number() && std::fmod(a.get<double>(), b.get<double>()) == 0;
}

// Null is written for what is absent.
bool Binds(std::string_view keyword, const Schema& value) {
  return !IsAnnotation(keyword) && (!value.is_null() || keyword == "const");
}

// Finds equal values in a time that grows with the logarithm of their number.
class ValueSet {
 public:
  explicit ValueSet(const Schema& array) {
    for (const Schema& value : array) values_.insert(&value);
  }
  bool Has(const Schema& value) const { return values_.contains(&value); }
  // True if it is new. `value` must live as long as this.
  bool Insert(const Schema& value) { return values_.insert(&value).second; }

 private:
  struct Less {
    bool operator()(const Schema* a, const Schema* b) const { return *a < *b; }
  };
  std::set<const Schema*, Less> values_;
};

Schema MergeProperties(const Schema& a, const Schema& b) {
  // An object finds a name by looking at all of them.
  std::map<std::string_view, const Schema*> theirs;
  for (const auto& [name, schema] : b.get_ref<const Schema::object_t&>()) theirs.emplace(name, &schema);
  Schema::object_t merged;
  std::set<std::string_view> mine;
  const auto add = [&](const std::string& name, Schema schema) {
    static_cast<Schema::object_t::Container&>(merged).emplace_back(name, std::move(schema));
  };
  for (const auto& [name, schema] : a.get_ref<const Schema::object_t&>()) {
    mine.insert(name);
    const auto other = theirs.find(name);
    add(name, other == theirs.end() || *other->second == schema ? schema : Both(schema, *other->second));
  }
  for (const auto& [name, schema] : b.get_ref<const Schema::object_t&>()) {
    if (!mine.contains(name)) add(name, schema);
  }
  return merged;
}

// `closed` has additionalProperties, of which `other` says nothing: it may not have properties that the first does not
// name.
absl::Status CheckClosed(const Schema& closed, const Schema& other, const std::string& where) {
  const Schema none = Schema::object();
  const Schema& mine = closed.contains("properties") ? closed["properties"] : none;
  const Schema& theirs = other.contains("properties") ? other["properties"] : none;
  std::set<std::string> names;
  for (const auto& [name, schema] : mine.items()) names.insert(name);
  for (const auto& [name, schema] : theirs.items()) {
    if (names.contains(name)) continue;
    return SchemaError(where,
                       Concat("'additionalProperties' of one part applies to ", Quoted(name), " of another part"));
  }
  return absl::OkStatus();
}

Schema MergeRequired(const Schema& a, const Schema& b) {
  Schema all = a;
  ValueSet known(a);
  for (const Schema& name : b) {
    if (known.Insert(name)) all.push_back(name);
  }
  return all;
}

}  // namespace

absl::Status SchemaError(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(Concat("schema: ", Printable(where), ": ", what));
}

bool SaysMoreThan(const Schema& schema, std::string_view except) {
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword != except && Binds(keyword, value)) return true;
  }
  return false;
}

Schema Without(const Schema& schema, std::string_view keyword) {
  Schema rest = Schema::object();
  for (const auto& [name, value] : schema.get_ref<const Schema::object_t&>()) {
    if (name != keyword)
      static_cast<Schema::object_t::Container&>(rest.get_ref<Schema::object_t&>()).emplace_back(name, value);
  }
  return rest;
}

int64_t StepsOf(const Schema& schema) {
  constexpr int64_t kBytesAStep = 16;
  if (schema.is_string()) return 1 + std::ssize(schema.get_ref<const std::string&>()) / kBytesAStep;
  int64_t steps = 1;
  if (schema.is_array()) {
    for (const Schema& value : schema) steps += StepsOf(value);
  } else if (schema.is_object()) {
    for (const auto& [name, value] : schema.get_ref<const Schema::object_t&>()) {
      steps += 1 + std::ssize(name) / kBytesAStep + StepsOf(value);
    }
  }
  return steps;
}

absl::StatusOr<Schema> MergeSchemas(const Schema& a, const Schema& b, const std::string& where) {
  Schema merged = Schema::object();
  for (const auto& [keyword, value] : a.items()) {
    if (Binds(keyword, value)) merged[keyword] = value;
  }
  const auto has_others = [](const Schema& one) {
    return one.contains("additionalProperties") && !one["additionalProperties"].is_null();
  };
  if (has_others(a)) MOE_RETURN_IF_ERROR(CheckClosed(a, b, where));
  if (has_others(b)) MOE_RETURN_IF_ERROR(CheckClosed(b, a, where));
  for (const auto& [keyword, value] : b.items()) {
    if (!Binds(keyword, value)) continue;
    if (!merged.contains(keyword)) {
      merged[keyword] = value;
      continue;
    }
    Schema& mine = merged[keyword];
    if (mine == value) continue;
    const bool are_numbers = mine.is_number() && value.is_number();
    if (keyword == "type") {
      MOE_ASSIGN_OR_RETURN(mine, MergeTypes(mine, value, where));
    } else if (keyword == "properties" && mine.is_object() && value.is_object()) {
      mine = MergeProperties(mine, value);
    } else if (keyword == "required" && mine.is_array() && value.is_array()) {
      mine = MergeRequired(mine, value);
    } else if (keyword == "nullable" && mine.is_boolean() && value.is_boolean()) {
      mine = mine.get<bool>() && value.get<bool>();
    } else if (are_numbers && IsOneOf(keyword, {"minimum", "exclusiveMinimum", "minLength", "minItems"})) {
      mine = std::max(mine, value);
    } else if (are_numbers && IsOneOf(keyword, {"maximum", "exclusiveMaximum", "maxLength", "maxItems"})) {
      mine = std::min(mine, value);
    } else if (IsOneOf(keyword, {"items", "additionalItems", "unevaluatedItems", "propertyNames"})) {
      mine = Both(mine, value);
    } else if (IsOneOf(keyword, {"pattern", "format"})) {
      mine = Every(mine, value);
    } else if (keyword == "multipleOf" && IsMultiple(mine, value)) {
    } else if (keyword == "multipleOf" && IsMultiple(value, mine)) {
      mine = value;
    } else if (keyword == "enum" && mine.is_array() && value.is_array()) {
      const ValueSet theirs(value);
      std::erase_if(mine.get_ref<Schema::array_t&>(), [&](const Schema& one) { return !theirs.Has(one); });
    } else {
      return SchemaError(where, Concat(Quoted(keyword), " twice with different values cannot be enforced"));
    }
  }
  return merged;
}

}  // namespace moestro::text::grammar
