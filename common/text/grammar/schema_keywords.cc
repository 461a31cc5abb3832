#include "common/text/grammar/schema_keywords.h"

#include <algorithm>
#include <iterator>

#include "common/text/concat.h"
#include "common/text/json/quoted.h"

namespace moestro::text::grammar {
namespace {

constexpr Keyword kKeywords[] = {{"type", ""},
                                 {"enum", ""},
                                 {"const", ""},
                                 {"anyOf", ""},
                                 {"oneOf", ""},
                                 {"allOf", ""},
                                 {"$ref", ""},
                                 {"nullable", ""},
                                 {"properties", "object"},
                                 {"required", "object"},
                                 {"additionalProperties", "object"},
                                 {"unevaluatedProperties", "object"},
                                 {"patternProperties", "object"},
                                 {"propertyNames", "object"},
                                 {"items", "array"},
                                 {"prefixItems", "array"},
                                 {"additionalItems", "array"},
                                 {"unevaluatedItems", "array"},
                                 {"minItems", "array"},
                                 {"maxItems", "array"},
                                 {"minLength", "string"},
                                 {"maxLength", "string"},
                                 {"pattern", "string"},
                                 {"format", "string"},
                                 {"minimum", "number"},
                                 {"maximum", "number"},
                                 {"exclusiveMinimum", "number"},
                                 {"exclusiveMaximum", "number"},
                                 {"multipleOf", "number"}};

bool IsEmpty(const Schema& value, const Schema& /*schema*/) { return value.is_object() && value.empty(); }

double NumberOr(const Schema* value, double fallback) {
  return value != nullptr && value->is_number() ? value->get<double>() : fallback;
}

bool ItemsDiffer(const Schema& value, const Schema& schema) {
  return value == Schema(false) || NumberOr(Find(schema, "maxItems"), 2) <= 1;
}

bool RequiresAsMany(const Schema& value, const Schema& schema) {
  const Schema* required = Find(schema, "required");
  const size_t names = required != nullptr && required->is_array() ? required->size() : 0;
  return value.is_number() && value.get<double>() <= static_cast<double>(names);
}

// An object that names its properties has no others.
bool NamesNoMore(const Schema& value, const Schema& schema) {
  const Schema* properties = Find(schema, "properties");
  const Schema* others = Find(schema, "additionalProperties");
  return value.is_number() && properties != nullptr && properties->is_object() &&
         static_cast<double>(properties->size()) <= value.get<double>() && (others == nullptr || IsNever(*others)) &&
         !Has(schema, "patternProperties");
}

bool HasNoBranch(const Schema& /*value*/, const Schema& schema) { return !Has(schema, "then") && !Has(schema, "else"); }

bool MayContainNone(const Schema& /*value*/, const Schema& schema) {
  return NumberOr(Find(schema, "minContains"), 1) == 0 && !Has(schema, "maxContains");
}

// It says nothing without another keyword, which is in the table, too.
bool BelongsToAnother(const Schema& /*value*/, const Schema& /*schema*/) { return true; }

// Of values of other types than the schema has.
bool ExcludesOtherTypes(const Schema& value, const Schema& schema) {
  if (IsNever(value)) return true;
  const Schema *excluded = Find(value, "type"), *allowed = Find(schema, "type");
  if (!value.is_object() || excluded == nullptr || allowed == nullptr || SaysMoreThan(value, "type")) return false;
  const auto list = [](const Schema& type) { return type.is_array() ? type : Schema::array({type}); };
  const auto overlap = [](const Schema& a, const Schema& b) {
    return a == b || (a == "integer" && b == "number") || (a == "number" && b == "integer");
  };
  const Schema types = list(*excluded);
  return std::ranges::none_of(list(*allowed), [&](const Schema& type) {
    return std::ranges::any_of(types, [&](const Schema& one) { return overlap(type, one); });
  });
}

bool NeverHarmless(const Schema& /*value*/, const Schema& /*schema*/) { return false; }

struct Unenforced {
  std::string_view name;
  bool (*binds_nothing)(const Schema& value, const Schema& schema);
};
constexpr Unenforced kUnenforced[] = {{"not", ExcludesOtherTypes},
                                      {"uniqueItems", ItemsDiffer},
                                      {"contains", MayContainNone},
                                      {"minContains", BelongsToAnother},
                                      {"maxContains", BelongsToAnother},
                                      {"minProperties", RequiresAsMany},
                                      {"maxProperties", NamesNoMore},
                                      {"dependentRequired", IsEmpty},
                                      {"dependentSchemas", IsEmpty},
                                      {"dependencies", IsEmpty},
                                      {"if", HasNoBranch},
                                      {"then", BelongsToAnother},
                                      {"else", BelongsToAnother},
                                      {"$dynamicRef", NeverHarmless},
                                      {"$recursiveRef", NeverHarmless}};

}  // namespace

std::span<const Keyword> Keywords() { return kKeywords; }

const Schema* Find(const Schema& schema, std::string_view keyword) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(keyword);
  return found == schema.end() || (found->is_null() && keyword != "const") ? nullptr : &*found;
}

bool IsNever(const Schema& schema) {
  if (schema == Schema(false)) return true;
  const Schema* excluded = Find(schema, "not");
  return excluded != nullptr && (*excluded == Schema(true) || (excluded->is_object() && !SaysMoreThan(*excluded, "")));
}

absl::Status CheckKeywords(const Schema& schema, const std::string& where) {
  for (const Unenforced& keyword : kUnenforced) {
    const Schema* value = Find(schema, keyword.name);
    if (value == nullptr || keyword.binds_nothing(*value, schema)) continue;
    return SchemaError(where, Concat(Quoted(keyword.name), " cannot be enforced"));
  }
  return absl::OkStatus();
}

bool IsAnnotation(std::string_view keyword) {
  const auto is_this = [&](const auto& one) { return one.name == keyword; };
  return std::ranges::none_of(kKeywords, is_this) && std::ranges::none_of(kUnenforced, is_this);
}

std::string Under(const std::string& where, std::string_view keyword) {
  constexpr size_t kMostWhere = 256, kMostKeyword = 64;
  return where.size() > kMostWhere ? where : Concat(where, "/", keyword.substr(0, kMostKeyword));
}

}  // namespace moestro::text::grammar
