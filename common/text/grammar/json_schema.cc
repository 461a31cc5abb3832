#include "common/text/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/json_text.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/schema_keywords.h"
#include "common/text/grammar/schema_merge.h"
#include "common/text/grammar/schema_numbers.h"
#include "common/text/grammar/schema_reference.h"
#include "common/text/grammar/schema_strings.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"

namespace moestro::text::grammar {
namespace {

// References and parts of allOf in each other: one that comes back to itself says nothing.
constexpr int kMaxResolving = 64;
// Schemas in each other, those of references that were merged included.
constexpr int kMaxSchemaNesting = 128;
// allOf and anyOf copy what stands beside them into every part.
constexpr int kMaxSchemas = 8 * 1024;
// Of a property beside additionalProperties, whose names must differ from it.
constexpr size_t kMaxExcludedName = 256;
constexpr std::array<const char*, 7> kTypes = {"null", "boolean", "integer", "number", "string", "array", "object"};

std::string TypeOf(const Schema& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "boolean";
  if (value.is_string()) return "string";
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  return value.is_number_integer() ? "integer" : "number";
}

// A length or a bound of numbers, which a value of an enumeration can be compared with.
bool IsScalarBound(std::string_view keyword) {
  constexpr std::string_view kBounds[] = {"minLength", "maxLength",        "minimum",
                                          "maximum",   "exclusiveMinimum", "exclusiveMaximum"};
  return std::find(std::begin(kBounds), std::end(kBounds), keyword) != std::end(kBounds);
}

bool IsWithin(const Schema& value, const Schema& schema) {
  const auto bound = [&](const char* keyword, double none) {
    const Schema* found = Find(schema, keyword);
    return found != nullptr && found->is_number() ? found->get<double>() : none;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };  // a character
    const auto length = static_cast<double>(std::count_if(text.begin(), text.end(), begins));
    return length >= bound("minLength", 0) && length <= bound("maxLength", kInfinity);
  }
  if (!value.is_number()) return true;
  const auto number = value.get<double>();
  return number >= bound("minimum", -kInfinity) && number <= bound("maximum", kInfinity) &&
         number > bound("exclusiveMinimum", -kInfinity) && number < bound("exclusiveMaximum", kInfinity);
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Schema& root, CompileBudget& budget)
      : root_(root), budget_(budget), json_(&grammar_), strings_(json_, budget) {}

  absl::StatusOr<Grammar> Compile() {
    const RuleId root = grammar_.AddRule("#");
    references_["#"] = root;
    MOE_ASSIGN_OR_RETURN(const NodeId body, Value(root_, "#", 0));
    grammar_.Define(root, body);
    return std::move(grammar_);
  }

 private:
  // Of a copy of a part of the schema: counts it while it lives.
  class Held {
   public:
    Held(SchemaCompiler& compiler, int64_t steps) : compiler_(compiler), steps_(steps) { compiler_.held_ += steps_; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { compiler_.held_ -= steps_; }

   private:
    SchemaCompiler& compiler_;
    const int64_t steps_;
  };

  // Before a copy of that many steps is made.
  absl::Status SpendCopy(int64_t steps, const std::string& where) {
    constexpr int64_t kStepsOfACopy = 2;  // one is looking for what is to be copied
    if (held_ + steps > kMaxHeldValues) {
      return SchemaError(where, "what references, allOf and anyOf repeat is too large");
    }
    if (grammar_.is_too_large()) return SchemaError(where, "the grammar is too large: it has too many parts");
    return Annotate(budget_.Spend(kStepsOfACopy * steps), Concat("schema: ", Printable(where)));
  }

  absl::StatusOr<NodeId> Value(const Schema& schema, const std::string& where, int nesting) {
    if (nesting > kMaxSchemaNesting) return SchemaError(where, "schemas are nested too deep");
    if (++schemas_ > kMaxSchemas) return SchemaError(where, "too many schemas, with the parts of allOf and anyOf");
    if (schema == Schema(true)) return json_.Value();
    if (IsNever(schema)) return SchemaError(where, "false allows no value");
    if (!schema.is_object()) return SchemaError(where, "is not a schema: an object, true or false");
    MOE_RETURN_IF_ERROR(SpendCopy(std::ssize(schema), where));
    MOE_RETURN_IF_ERROR(CheckShapes(schema, where));
    if (const Schema* reference = Find(schema, "$ref")) {
      if (!SaysMoreThan(schema, "$ref")) return Reference(*reference, where, nesting);
    }
    if (Has(schema, "$ref") || Has(schema, "allOf")) {
      MOE_ASSIGN_OR_RETURN(const Schema resolved, Resolve(schema, where, 0));
      const Held held(*this, StepsOf(resolved));
      return Value(resolved, where, nesting + 1);
    }
    MOE_RETURN_IF_ERROR(CheckKeywords(schema, where));
    if (Has(schema, "anyOf") && Has(schema, "oneOf")) {
      return SchemaError(where, "anyOf and oneOf together cannot be enforced");
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const Schema* parts = Find(schema, keyword)) return AnyOf(schema, *parts, keyword, where, nesting);
    }
    if (Has(schema, "enum") || Has(schema, "const")) return Enumeration(schema, where);
    return AnyType(schema, where, nesting);
  }

  // What merging relies on.
  absl::Status CheckShapes(const Schema& schema, const std::string& where) const {
    for (const char* name : {"properties", "$defs", "definitions"}) {
      const Schema* value = Find(schema, name);
      if (value != nullptr && !value->is_object()) return SchemaError(Under(where, name), "is not an object");
    }
    const Schema* nullable = Find(schema, "nullable");
    if (nullable != nullptr && !nullable->is_boolean()) return SchemaError(where, "'nullable' is not true or false");
    return absl::OkStatus();
  }

  absl::StatusOr<const Schema*> Target(const Schema& reference, const std::string& where) {
    if (!reference.is_string()) return SchemaError(where, "'$ref' is not a string");
    const auto& text = reference.get_ref<const std::string&>();
    MOE_RETURN_IF_ERROR(SpendCopy(StepsOf(reference), where));
    if (const auto found = targets_.find(text); found != targets_.end()) return found->second;
    MOE_ASSIGN_OR_RETURN(const Schema* const target, FindTarget(root_, text, where));
    targets_.emplace(text, target);
    return target;
  }

  absl::StatusOr<NodeId> Reference(const Schema& reference, const std::string& where, int nesting) {
    MOE_ASSIGN_OR_RETURN(const Schema* const target, Target(reference, where));
    const auto& text = reference.get_ref<const std::string&>();
    const auto [entry, added] = references_.try_emplace(text, 0);
    if (!added) return grammar_.Call(entry->second);
    const RuleId rule = entry->second = grammar_.AddRule(text);
    MOE_ASSIGN_OR_RETURN(const NodeId body, Value(*target, text, nesting + 1));
    grammar_.Define(rule, body);
    return grammar_.Call(rule);
  }

  // The schema with the targets of $ref and the parts of allOf merged into it.
  absl::StatusOr<Schema> Resolve(const Schema& schema, const std::string& where, int resolving) {
    if (resolving > kMaxResolving) return SchemaError(where, "$ref or allOf refers to itself");
    if (schema == Schema(true)) return Schema::object();
    if (!schema.is_object()) return SchemaError(where, "a part of allOf is not an object");
    MOE_RETURN_IF_ERROR(CheckShapes(schema, where));
    if (++schemas_ > kMaxSchemas) return SchemaError(where, "too many schemas, with the parts of allOf and anyOf");
    MOE_RETURN_IF_ERROR(SpendCopy(StepsOf(schema), where));
    Schema merged = Without(Without(schema, "$ref"), "allOf");
    if (const Schema* reference = Find(schema, "$ref")) {
      MOE_ASSIGN_OR_RETURN(const Schema* const target, Target(*reference, where));
      MOE_ASSIGN_OR_RETURN(const Schema* const part, ResolveTarget(target, where, resolving + 1));
      MOE_ASSIGN_OR_RETURN(merged, Merge(*part, merged, where));
    }
    if (const Schema* parts = Find(schema, "allOf")) {
      if (!parts->is_array() || parts->empty()) return SchemaError(Under(where, "allOf"), "is not an array of schemas");
      for (const Schema& one : *parts) {
        const Held held(*this, StepsOf(merged));
        MOE_ASSIGN_OR_RETURN(const Schema part, Resolve(one, Under(where, "allOf"), resolving + 1));
        MOE_ASSIGN_OR_RETURN(merged, Merge(merged, part, where));
      }
    }
    return merged;
  }

  // Once for each target, however many refer to it.
  absl::StatusOr<const Schema*> ResolveTarget(const Schema* target, const std::string& where, int resolving) {
    if (const auto found = resolved_.find(target); found != resolved_.end()) return &found->second;
    MOE_ASSIGN_OR_RETURN(Schema resolved, Resolve(*target, where, resolving));
    held_ += StepsOf(resolved);  // to the end
    return &resolved_.emplace(target, std::move(resolved)).first->second;
  }

  absl::StatusOr<Schema> Merge(const Schema& a, const Schema& b, const std::string& where) {
    MOE_RETURN_IF_ERROR(SpendCopy(StepsOf(a) + StepsOf(b), where));
    return MergeSchemas(a, b, where);
  }

  // What stands beside anyOf applies to every part.
  absl::StatusOr<NodeId> AnyOf(const Schema& schema, const Schema& parts, const char* keyword, const std::string& where,
                               int nesting) {
    const std::string inside = Under(where, keyword);
    if (!parts.is_array() || parts.empty()) return SchemaError(inside, "is not an array of schemas");
    const bool alone = !SaysMoreThan(schema, keyword);
    Schema beside;
    if (!alone) {
      MOE_RETURN_IF_ERROR(SpendCopy(StepsOf(schema), where));
      beside = Without(schema, keyword);
    }
    const Held held_beside(*this, StepsOf(beside));
    std::vector<NodeId> ways;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string place = Under(inside, std::to_string(i));
      if (IsNever(parts[i])) continue;
      if (alone) {
        MOE_ASSIGN_OR_RETURN(const NodeId way, Value(parts[i], place, nesting + 1));
        ways.push_back(way);
        continue;
      }
      MOE_ASSIGN_OR_RETURN(const Schema part, Resolve(parts[i], place, 0));
      MOE_ASSIGN_OR_RETURN(const Schema merged, Merge(part, beside, place));
      const Held held(*this, StepsOf(merged));
      MOE_ASSIGN_OR_RETURN(const NodeId way, Value(merged, place, nesting + 1));
      ways.push_back(way);
    }
    if (ways.empty()) return SchemaError(inside, "false allows no value");
    return grammar_.Alternatives(std::move(ways));
  }

  absl::StatusOr<std::vector<std::string>> TypesOf(const Schema& schema, const std::string& where) const {
    std::vector<std::string> types;
    if (const Schema* type = Find(schema, "type")) {
      const Schema list = type->is_array() ? *type : Schema::array({*type});
      for (const Schema& one : list) {
        if (!one.is_string() || std::find(kTypes.begin(), kTypes.end(), one.get<std::string>()) == kTypes.end()) {
          return SchemaError(Under(where, "type"),
                             "is not one of null, boolean, integer, number, string, array, object");
        }
        types.push_back(one.get<std::string>());
      }
      if (types.empty()) return SchemaError(Under(where, "type"), "is empty");
    } else {
      // The keywords say which values are meant.
      for (const Keyword& keyword : Keywords()) {
        const bool is_new = std::find(types.begin(), types.end(), keyword.type) == types.end();
        if (!keyword.type.empty() && is_new && Has(schema, keyword.name)) types.emplace_back(keyword.type);
      }
    }
    const Schema* nullable = Find(schema, "nullable");
    const bool has_null = std::find(types.begin(), types.end(), "null") != types.end();
    if (nullable != nullptr && nullable->get<bool>() && !has_null && !types.empty()) types.emplace_back("null");
    return types;
  }

  absl::StatusOr<NodeId> Enumeration(const Schema& schema, const std::string& where) {
    MOE_RETURN_IF_ERROR(SpendCopy(2 * StepsOf(schema), where));  // the values, and their texts
    for (const auto& [name, value] : schema.items()) {
      const bool is_read = name == "enum" || name == "const" || name == "type" || name == "nullable" ||
                           IsScalarBound(name) || name == "format" || IsAnnotation(name) || value.is_null();
      if (!is_read) return SchemaError(where, Concat(Quoted(name), " beside enum or const cannot be enforced"));
    }
    Schema values = Schema::array();
    if (const Schema* list = Find(schema, "enum")) {
      if (!list->is_array()) return SchemaError(Under(where, "enum"), "is not an array");
      values = *list;
    }
    if (const Schema* only = Find(schema, "const")) {
      const bool fits = !Has(schema, "enum") || std::find(values.begin(), values.end(), *only) != values.end();
      values = Schema::array();
      if (fits) values.push_back(*only);
    }
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(schema, where));
    const auto has = [&](const std::string& type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    std::vector<NodeId> ways;
    for (const Schema& value : values) {
      const std::string type = TypeOf(value);
      const bool is_whole = value.is_number_float() && value.get<double>() == std::trunc(value.get<double>());
      const bool fits =
          types.empty() || has(type) || (type == "integer" && has("number")) || (is_whole && has("integer"));
      if (fits && IsWithin(value, schema)) ways.push_back(grammar_.Bytes(value.dump()));
    }
    if (ways.empty()) return SchemaError(where, "enum or const has no value of the type");
    return grammar_.Alternatives(std::move(ways));
  }

  absl::StatusOr<NodeId> AnyType(const Schema& schema, const std::string& where, int nesting) {
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(schema, where));
    if (types.empty()) return json_.Value();
    std::vector<NodeId> ways;
    for (const std::string& type : types) {
      MOE_ASSIGN_OR_RETURN(const NodeId way, OneType(type, schema, where, nesting));
      ways.push_back(way);
    }
    return grammar_.Alternatives(std::move(ways));
  }

  absl::StatusOr<NodeId> OneType(const std::string& type, const Schema& schema, const std::string& where, int nesting) {
    if (type == "null") return json_.Null();
    if (type == "boolean") return json_.Boolean();
    if (type == "integer" || type == "number") return CompileNumber(schema, type == "integer", where, json_, budget_);
    if (type == "string") return strings_.Compile(schema, where);
    if (type == "array") return Array(schema, where, nesting);
    return Object(schema, where, nesting);
  }

  // Rules for items and properties: a schema in a repetition or in two alternatives is compiled once.
  absl::StatusOr<NodeId> AsRule(const Schema& schema, const std::string& where, int nesting) {
    MOE_ASSIGN_OR_RETURN(const NodeId body, Value(schema, where, nesting + 1));
    return grammar_.nodes()[body].kind == Grammar::Node::Kind::kRule ? body
                                                                     : grammar_.Call(grammar_.AddRule(where, body));
  }

  NodeId CommaThen(NodeId item) { return grammar_.Sequence({grammar_.Bytes(","), json_.Space(), item}); }

  absl::StatusOr<NodeId> Array(const Schema& schema, const std::string& where, int nesting) {
    MOE_ASSIGN_OR_RETURN(const Counts counts, CountsOf(schema, "minItems", "maxItems", where));
    const uint32_t min = counts.min;
    uint32_t max = counts.max;
    // Before 2020-12 a list in `items` is prefixItems, and additionalItems is what `items` is now.
    const Schema* items = Find(schema, "items");
    const Schema* prefix = Find(schema, "prefixItems");
    const char* place = "prefixItems";
    if (prefix == nullptr && items != nullptr && items->is_array()) {
      prefix = std::exchange(items, Find(schema, "additionalItems"));
      place = "items";
    }
    if (items == nullptr) items = Find(schema, "unevaluatedItems");
    std::vector<NodeId> first;  // of prefixItems
    if (prefix != nullptr) {
      const std::string inside = Under(where, place);
      if (!prefix->is_array()) return SchemaError(inside, "is not an array of schemas");
      for (size_t i = 0; i < std::min<size_t>(prefix->size(), max); ++i) {
        MOE_ASSIGN_OR_RETURN(const NodeId item, Value((*prefix)[i], Under(inside, std::to_string(i)), nesting + 1));
        first.push_back(item);
      }
    }
    const auto given = static_cast<uint32_t>(first.size());
    const bool closed = items == nullptr ? given > 0 && min <= given : IsNever(*items);
    if (closed) max = std::min(max, given);
    if (max < min) return SchemaError(where, "minItems is above the number of prefixItems, and items is false");
    std::vector<NodeId> parts = {grammar_.Bytes("[")};
    for (uint32_t i = 0; i < given; ++i) {
      if (i > 0) parts.push_back(grammar_.Bytes(","));
      parts.push_back(json_.Space());
      parts.push_back(first[i]);
    }
    if (max > given) {
      NodeId item = -1;
      if (items == nullptr) {
        item = json_.Value();
      } else {
        MOE_ASSIGN_OR_RETURN(item, AsRule(*items, Under(where, "items"), nesting));
      }
      const uint32_t least = min > given ? min - given : 0;
      const uint32_t most = max == Grammar::kUnbounded ? max : max - given;
      const auto minus_one = [](uint32_t count) {
        return count == Grammar::kUnbounded || count == 0 ? count : count - 1;
      };
      if (given > 0) {
        parts.push_back(json_.Times(CommaThen(item), least, most));
      } else {
        const NodeId more = json_.Times(CommaThen(item), minus_one(least), minus_one(most));
        const NodeId all = grammar_.Sequence({json_.Space(), item, more});
        parts.push_back(least == 0 ? grammar_.Optional(all) : all);
      }
    }
    parts.push_back(json_.Space());
    parts.push_back(grammar_.Bytes("]"));
    return grammar_.Sequence(std::move(parts));
  }

  // The members that a schema does not name.
  struct Others {
    const Schema* values = nullptr;                 // null: the schema does not say
    std::shared_ptr<const Schema> names = nullptr;  // null: any
  };

  absl::StatusOr<Others> OthersOf(const Schema& schema, bool has_named, const std::string& where) {
    Others others{.values = Find(schema, "additionalProperties")};
    if (others.values == nullptr) others.values = Find(schema, "unevaluatedProperties");
    Schema names = {{"type", "string"}};
    if (const Schema* given = Find(schema, "propertyNames"); given != nullptr && *given != Schema(true)) {
      if (IsNever(*given)) others.values = given;
      MOE_ASSIGN_OR_RETURN(const Schema resolved, Resolve(IsNever(*given) ? Schema(true) : *given, where, 0));
      MOE_ASSIGN_OR_RETURN(names, Merge(resolved, names, Under(where, "propertyNames")));
    }
    const Schema* patterns = Find(schema, "patternProperties");
    if (patterns != nullptr && !patterns->is_object()) {
      return SchemaError(Under(where, "patternProperties"), "is not an object");
    }
    if (patterns != nullptr && !patterns->empty()) {
      // A name that two patterns match would have to be valid for both.
      if (patterns->size() > 1) return SchemaError(where, "several 'patternProperties' cannot be enforced");
      names["pattern"] = names.contains("pattern") ? Schema::array({names["pattern"], patterns->begin().key()})
                                                   : Schema(patterns->begin().key());
      others.values = &*patterns->begin();
    }
    if (names.size() == 1) return others;  // only their type
    const bool has_more = others.values == nullptr || !IsNever(*others.values);
    if (has_named && has_more) {
      return SchemaError(where, "'propertyNames' or 'patternProperties' beside named properties cannot be enforced");
    }
    others.names = std::make_shared<const Schema>(std::move(names));
    return others;
  }

  struct Property {
    NodeId pair;  // a call: it stands in two places
    bool required;
  };

  absl::StatusOr<NodeId> Object(const Schema& schema, const std::string& where, int nesting) {
    static const Schema kNone = Schema::object();
    const Schema* named = Find(schema, "properties");
    const Schema& properties = named == nullptr ? kNone : *named;
    std::vector<std::string> required;
    // Of a property, true or false: what draft 3 has says nothing of the value.
    if (const Schema* list = Find(schema, "required"); list != nullptr && !list->is_boolean()) {
      if (!list->is_array()) return SchemaError(Under(where, "required"), "is not an array");
      for (const Schema& name : *list) {
        if (!name.is_string()) return SchemaError(Under(where, "required"), "is not an array of names");
        required.push_back(name.get<std::string>());
      }
      std::sort(required.begin(), required.end());
    }
    MOE_ASSIGN_OR_RETURN(const Others others, OthersOf(schema, !properties.empty() || !required.empty(), where));
    const Schema* additional = others.values;
    const bool is_open = additional == nullptr ? named == nullptr && required.empty() : !IsNever(*additional);
    const bool is_any = others.names == nullptr && (additional == nullptr || *additional == Schema(true));
    if (is_open && properties.empty() && required.empty() && is_any) return json_.Object();
    std::vector<Property> members;
    std::set<std::string> names;
    const auto add = [&](const std::string& name, const Schema& value, const std::string& place) -> absl::Status {
      const bool is_required = std::binary_search(required.begin(), required.end(), name);
      names.insert(name);
      if (IsNever(value) && !is_required) return absl::OkStatus();
      MOE_ASSIGN_OR_RETURN(const NodeId node, Value(value, place, nesting + 1));
      const NodeId pair = json_.Pair(grammar_.Bytes(Schema(name).dump()), node);
      members.push_back({grammar_.Call(grammar_.AddRule(place, pair)), is_required});
      return absl::OkStatus();
    };
    for (const auto& [name, value] : properties.items()) {
      MOE_RETURN_IF_ERROR(add(name, value, Under(Under(where, "properties"), name)));
    }
    for (const std::string& name : required) {
      if (names.contains(name)) continue;
      if (additional != nullptr && IsNever(*additional)) {
        return SchemaError(Under(where, "required"), Concat(Quoted(name), " is not in properties"));
      }
      MOE_RETURN_IF_ERROR(add(name, additional == nullptr ? Schema(true) : *additional, Under(where, "required")));
    }
    NodeId other = -1;
    if (is_open) {
      for (const std::string& name : names) {
        if (name.size() > kMaxExcludedName) return SchemaError(where, "a name too long beside additionalProperties");
      }
      const Schema any = true;
      MOE_ASSIGN_OR_RETURN(const NodeId value, AsRule(additional == nullptr ? any : *additional,
                                                      Under(where, "additionalProperties"), nesting));
      NodeId key = -1;
      if (others.names != nullptr) {
        MOE_ASSIGN_OR_RETURN(key, Value(*others.names, Under(where, "propertyNames"), nesting + 1));
      } else {
        key = names.empty() ? json_.String() : json_.StringExcept({names.begin(), names.end()});
      }
      other = json_.Pair(grammar_.Call(grammar_.AddRule(Under(where, "(other name)"), key)), value);
    }
    return Members(members, other, where);
  }

  // In the order of the schema; what is optional may be left out. `other`: -1, or a pair that may follow many times.
  NodeId Members(const std::vector<Property>& members, NodeId other, const std::string& where) {
    const NodeId nothing = grammar_.Bytes("");
    // What may follow where a member stands already, and where none does.
    NodeId after = nothing, first = nothing;
    if (other >= 0) {
      after = grammar_.Repeat(CommaThen(other), 0, Grammar::kUnbounded);
      first = grammar_.Optional(grammar_.Sequence({json_.Space(), other, after}));
    }
    bool in_rule = true;  // `after` is small
    for (size_t i = members.size(); i-- > 0;) {
      const auto& [pair, required] = members[i];
      // Both use what follows: it becomes a rule, or it would double with each member.
      if (!std::exchange(in_rule, false)) {
        after = grammar_.Call(grammar_.AddRule(Concat(where, " (rest)"), after));
        first = grammar_.Call(grammar_.AddRule(Concat(where, " (members)"), first));
      }
      const NodeId begun = grammar_.Sequence({json_.Space(), pair, after});
      const NodeId more = grammar_.Sequence({CommaThen(pair), after});
      first = required ? begun : grammar_.Alternatives({begun, first});
      after = required ? more : grammar_.Alternatives({more, after});
    }
    return grammar_.Sequence({grammar_.Bytes("{"), first, json_.Space(), grammar_.Bytes("}")});
  }

  const Schema& root_;
  CompileBudget& budget_;
  Grammar grammar_;
  JsonText json_;
  SchemaStrings strings_;
  std::map<std::string, RuleId, std::less<>> references_;
  std::map<std::string, const Schema*> targets_;  // of references
  std::map<const Schema*, Schema> resolved_;      // targets, with what they refer to merged into them
  int64_t held_ = 0;                              // steps of the copies that live
  int schemas_ = 0;
};

}  // namespace

absl::StatusOr<Grammar> CompileJsonSchema(std::string_view schema, CompileBudget& budget) {
  MOE_ASSIGN_OR_RETURN(const Schema root, ParseOrderedJsonObject(schema, "schema"));
  return SchemaCompiler(root, budget).Compile();
}

Grammar AnyJsonObject() {
  Grammar grammar;
  const RuleId root = grammar.AddRule("root");
  JsonText json(&grammar);
  grammar.Define(root, json.Object());
  return grammar;
}

}  // namespace moestro::text::grammar
