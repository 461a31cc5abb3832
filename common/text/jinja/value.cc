#include "common/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/print.h"

namespace moestro::text::jinja {
namespace {

// Before keys that are no strings, and none among them.
constexpr char kOtherKey = '\xFF';
constexpr char kNoneKey = 'N';

int Depth(const Value& value) {
  if (const List* list = value.AsList()) return list->depth;
  if (const Dict* dict = value.AsDict()) return dict->depth;
  return 0;
}

absl::Status CheckDepth(int depth) {
  if (depth <= kMaxValueDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(Concat("lists are nested more than ", kMaxValueDepth, " deep"));
}

}  // namespace

// Not inline: GCC 12 with sanitizers reports a false error in the unused part of the variant.
Value::Value() = default;

Value Value::MakeMarkup(std::string text) {
  Value value;
  value.data_ = Markup{std::make_shared<const std::string>(std::move(text))};
  return value;
}

absl::StatusOr<Value> Value::MakeList(std::vector<Value> items) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, 1 + Depth(item));
  if (absl::Status status = CheckDepth(depth); !status.ok()) return status;
  Value value;
  value.data_ = std::make_shared<const List>(List{std::move(items), depth});
  return value;
}

absl::StatusOr<Value> Value::MakeTuple(std::vector<Value> items, std::span<const std::string_view> fields) {
  MOE_ASSIGN_OR_RETURN(const Value list, MakeList(std::move(items)));
  Value value;
  value.data_ = std::make_shared<const List>(
      List{.items = list.AsList()->items, .depth = list.AsList()->depth, .is_tuple = true, .fields = fields});
  return value;
}

absl::StatusOr<std::string> DictKey(const Value& key) {
  if (const std::string* text = key.AsString()) return *text;
  if (key.IsNone()) return std::string(1, kOtherKey) + kNoneKey;
  if (key.IsIntegral()) return kOtherKey + std::to_string(key.Integral());
  if (const double* real = key.AsFloat()) {
    const bool is_whole = *real == std::trunc(*real) && std::fabs(*real) < 0x1p53;
    return kOtherKey + (is_whole ? std::to_string(static_cast<int64_t>(*real)) : FloatText(*real));
  }
  return absl::InvalidArgumentError(Concat(key.TypeName(), " cannot be the key of a dict"));
}

Value KeyOf(std::string_view kept) {
  if (!kept.starts_with(kOtherKey)) return Value(kept);
  const std::string text(kept.substr(1));
  if (text[0] == kNoneKey) return Value(Value::None{});
  if (text.find_first_not_of("-0123456789") == std::string::npos) {
    return Value(static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10)));
  }
  return Value(std::strtod(text.c_str(), nullptr));
}

absl::StatusOr<Value> Value::MakeDict(std::vector<std::pair<std::string, Value>> items) {
  Dict dict{{}, 1};
  dict.items.reserve(items.size());
  // A client's JSON may have many keys; the dicts of every loop iteration have few.
  constexpr size_t kSearched = 16;
  absl::flat_hash_map<std::string, size_t> positions;
  const auto find = [&](const std::string& key) -> size_t {
    if (items.size() > kSearched) return positions.emplace(key, dict.items.size()).first->second;
    const auto same = std::find_if(dict.items.begin(), dict.items.end(), [&](const auto& e) { return e.first == key; });
    return same - dict.items.begin();
  };
  for (auto& [key, item] : items) {
    dict.depth = std::max(dict.depth, 1 + Depth(item));
    const size_t position = find(key);
    if (position == dict.items.size()) {
      dict.items.emplace_back(std::move(key), std::move(item));
    } else {
      dict.items[position].second = std::move(item);
    }
  }
  if (absl::Status status = CheckDepth(dict.depth); !status.ok()) return status;
  Value value;
  value.data_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

absl::StatusOr<const Value*> Dict::Find(std::string_view key, Budget& budget) const {
  for (const auto& [name, value] : items) {
    // Names of different lengths are not compared.
    MOE_RETURN_IF_ERROR(budget.Charge(1 + static_cast<int64_t>(name.size() == key.size() ? key.size() : 0)));
    if (name == key) return &value;
  }
  return nullptr;
}

bool Value::IsTrue() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return Number() != 0;
  if (const std::string* text = AsString()) return !text->empty();
  if (const List* list = AsList()) return !list->items.empty();
  if (const Dict* dict = AsDict()) return !dict->items.empty();
  return true;
}

std::string_view Value::TypeName() const {
  constexpr std::string_view kNames[] = {"undefined", "none",     "boolean", "integer",   "float",
                                         "string",    "list",     "dict",    "namespace", "macro",
                                         "macro",     "function", "integer", "string"};
  return kNames[data_.index()];
}

}  // namespace moestro::text::jinja
