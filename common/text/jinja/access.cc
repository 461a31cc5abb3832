#include "common/text/jinja/access.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/strings.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

constexpr int64_t kItemCost = sizeof(Value);

absl::Status UndefinedMember(std::string_view member) {
  return absl::InvalidArgumentError(Concat("undefined has no member '", member, "'"));
}

// Cost of a copy and of the offsets of all code points.
int64_t TextCost(const std::string& text) { return static_cast<int64_t>(text.size() * (1 + sizeof(size_t))); }

std::string_view CodePointAt(const std::string& text, const std::vector<size_t>& offsets, int64_t index) {
  return std::string_view(text).substr(offsets[index], offsets[index + 1] - offsets[index]);
}

// begin, begin + stride, ... up to, but excluding, end.
struct Range {
  int64_t begin;
  int64_t end;
  int64_t stride;

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) visit(i);
  }
};

// The positions selected by Python's slice of `length` items.
absl::StatusOr<Range> SliceRange(int64_t length, const Value& start, const Value& stop, const Value& step) {
  MOE_ASSIGN_OR_RETURN(const int64_t stride, IntegerArgument(step, 1, "step"));
  if (stride == 0) return absl::InvalidArgumentError("the step of a slice must not be 0");
  // The range of a bound: one past either end means "no more items".
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  const auto bound = [&](const Value& value, int64_t fallback, std::string_view name) -> absl::StatusOr<int64_t> {
    if (value.IsUndefined() || value.IsNone()) return fallback;
    MOE_ASSIGN_OR_RETURN(const int64_t index, IntegerArgument(value, 0, name));
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  MOE_ASSIGN_OR_RETURN(const int64_t begin, bound(start, stride > 0 ? low : high, "start"));
  MOE_ASSIGN_OR_RETURN(const int64_t end, bound(stop, stride > 0 ? high : low, "stop"));
  // A stride larger than the length selects one item and must not overflow.
  return Range{begin, end, std::clamp(stride, -length - 1, length + 1)};
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name, Budget& budget) {
  if (object.IsUndefined()) return UndefinedMember(name);
  if (const Dict* dict = object.AsDict()) {
    MOE_ASSIGN_OR_RETURN(const Value* value, dict->Find(name, budget));
    return value == nullptr ? Value() : *value;
  }
  if (const List* list = object.AsList()) {
    const auto found = std::find(list->fields.begin(), list->fields.end(), name);
    if (found != list->fields.end()) return list->items[static_cast<size_t>(found - list->fields.begin())];
  }
  if (const Namespace* space = object.AsNamespace()) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(name.size())));
    const auto found = space->find(std::string(name));
    if (found != space->end()) return found->second;
  }
  return Value();
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& index, Budget& budget) {
  if (const std::string* name = index.AsString()) return GetAttribute(object, *name, budget);
  if (object.IsUndefined()) return UndefinedMember("[]");
  if (const Dict* dict = object.AsDict(); dict != nullptr && (index.IsNumber() || index.IsNone())) {
    MOE_ASSIGN_OR_RETURN(const std::string key, DictKey(index));
    MOE_ASSIGN_OR_RETURN(const Value* value, dict->Find(key, budget));
    return value == nullptr ? Value() : *value;
  }
  const std::string* text = object.AsString();
  if (!index.IsIntegral() || (text == nullptr && object.AsList() == nullptr)) return Value();
  if (text != nullptr) MOE_RETURN_IF_ERROR(budget.Charge(2 * static_cast<int64_t>(text->size())));
  const int64_t length = *Length(object);
  int64_t position = index.Integral() < 0 ? index.Integral() + length : index.Integral();
  if (position < 0 || position >= length) return Value();
  if (text == nullptr) return object.AsList()->items[position];
  size_t offset = 0;
  for (; position > 0; --position) offset += Utf8Length((*text)[offset]);
  return Value(text->substr(offset, Utf8Length((*text)[offset])));
}

absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step,
                               Budget& budget) {
  const std::string* text = object.AsString();
  if (text == nullptr && object.AsList() == nullptr) {
    return absl::InvalidArgumentError(Concat("cannot slice ", object.TypeName()));
  }
  const int64_t length = *Length(object);
  MOE_RETURN_IF_ERROR(budget.Charge(text == nullptr ? length * kItemCost : TextCost(*text)));
  MOE_ASSIGN_OR_RETURN(const Range range, SliceRange(length, start, stop, step));
  if (text == nullptr) {
    std::vector<Value> items;
    range.ForEach([&](int64_t i) { items.push_back(object.AsList()->items[i]); });
    return object.AsList()->is_tuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
  }
  const std::vector<size_t> offsets = CodePointOffsets(*text);
  std::string out;
  range.ForEach([&](int64_t i) { out += CodePointAt(*text, offsets, i); });
  return Value(std::move(out));
}

absl::StatusOr<std::vector<Value>> Items(const Value& value, Budget& budget) {
  const std::optional<int64_t> length = Length(value);
  if (!length.has_value()) return absl::InvalidArgumentError(Concat("cannot iterate over ", value.TypeName()));
  // Each code point becomes a separately allocated string.
  MOE_RETURN_IF_ERROR(budget.Charge(*length * kItemCost * (value.AsString() != nullptr ? 5 : 1)));
  if (const List* list = value.AsList()) return list->items;
  std::vector<Value> items;
  if (const std::string* text = value.AsString()) {
    const std::vector<size_t> offsets = CodePointOffsets(*text);
    for (int64_t i = 0; i < *length; ++i) items.emplace_back(CodePointAt(*text, offsets, i));
  } else if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, item] : dict->items) items.push_back(KeyOf(key));
  }
  return items;
}

std::optional<int64_t> Length(const Value& value) {
  if (const std::string* text = value.AsString()) return CodePointCount(*text);
  if (const List* list = value.AsList()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.AsDict()) return static_cast<int64_t>(dict->items.size());
  if (value.IsUndefined()) return 0;
  return std::nullopt;
}

absl::StatusOr<Value> DictItems(const Dict& dict, Budget& budget) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.items) {
    MOE_RETURN_IF_ERROR(budget.Charge(4 * kItemCost + static_cast<int64_t>(key.size())));
    MOE_ASSIGN_OR_RETURN(Value pair, Value::MakeTuple({KeyOf(key), value}));
    pairs.push_back(std::move(pair));
  }
  return Value::MakeList(std::move(pairs));
}

}  // namespace moestro::text::jinja
