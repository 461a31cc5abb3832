#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/strings.h"

namespace moestro::text::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Args = std::span<const Value>;

Args Variadic(Args args) { return args.subspan(Function::kMaxParameters); }

Result JoinFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  MOE_ASSIGN_OR_RETURN(const std::string separator, ToText(args[0], &budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!args[1].IsUndefined()) {
      MOE_ASSIGN_OR_RETURN(item, GetPath(items[i], args[1], budget));
    }
    MOE_ASSIGN_OR_RETURN(const std::string text, ToText(item, &budget));
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text.size() + separator.size())));
    if (i > 0) out += separator;
    out += text;
  }
  return Value(std::move(out));
}

Result FirstFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  return items.empty() ? Value() : items.front();
}

Result LastFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  return items.empty() ? Value() : items.back();
}

Result ListFilter(const Value& self, Args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  return Value::MakeList(std::move(items));
}

Result ReverseFilter(const Value& self, Args, Budget& budget) {
  if (self.AsString() != nullptr) return GetSlice(self, Value(), Value(), Value(int64_t{-1}), budget);
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

Result ItemsFilter(const Value& self, Args, Budget& budget) {
  if (self.IsUndefined()) return Value::MakeList({});
  if (self.AsDict() == nullptr) return absl::InvalidArgumentError(Concat("needs a dict, not ", self.TypeName()));
  return DictItems(*self.AsDict(), budget);
}

// The items whose attribute, or that themselves if `attribute` is undefined, pass a test named in `test` with `rest`;
// without a test, those that are true (or, unless `wanted`, the others).
Result Select(const Value& self, const Value& attribute, const Value& test_name, Args rest, bool wanted,
              Budget& budget) {
  const Function* test = nullptr;
  if (!test_name.IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(const std::string* name, StringArgument(test_name, "test"));
    test = FindTest(*name);
    if (test == nullptr) return absl::InvalidArgumentError(Concat("test '", *name, "' is not supported"));
  }
  // Jinja2 takes none for no items here, as all that is false.
  if (!self.IsTrue()) return Value::MakeList({});
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  std::vector<Value> selected;
  for (const Value& item : items) {
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    Value value = item;
    if (!attribute.IsUndefined()) {
      MOE_ASSIGN_OR_RETURN(value, GetPath(item, attribute, budget));
    }
    if (test != nullptr) {
      MOE_ASSIGN_OR_RETURN(value, Apply(*test, value, {rest.begin(), rest.end()}, {}, budget));
    }
    if (value.IsTrue() == wanted) selected.push_back(item);
  }
  return Value::MakeList(std::move(selected));
}

// select(test = truth, arguments of the test...)
template <bool wanted>
Result SelectFilter(const Value& self, Args args, Budget& budget) {
  return Select(self, Value(), args[0], Variadic(args), wanted, budget);
}

// selectattr(attribute, test = truth, arguments of the test...)
template <bool wanted>
Result SelectAttrFilter(const Value& self, Args args, Budget& budget) {
  if (args[0].IsUndefined()) return absl::InvalidArgumentError("'attribute' is missing");
  // A path is read even if there are no items.
  if (const std::string* path = args[0].AsString()) {
    MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(path->size())));
  }
  return Select(self, args[0], args[1], Variadic(args), wanted, budget);
}

// map('filter', arguments of the filter...) or map(attribute='name', default=value)
Result MapFilter(const Value& self, Args args, Budget& budget) {
  const Function* filter = nullptr;
  if (args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(const std::string* name, StringArgument(args[0], "filter"));
    filter = FindFilter(*name);
    if (filter == nullptr) return absl::InvalidArgumentError(Concat("filter '", *name, "' is not supported"));
    if (filter->call == &MapFilter) return absl::InvalidArgumentError("map of map is not supported");
  }
  if (!self.IsTrue()) return Value::MakeList({});
  const Args rest = Variadic(args);
  MOE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  for (Value& item : items) {
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    if (filter != nullptr) {
      MOE_ASSIGN_OR_RETURN(item, Apply(*filter, item, {rest.begin(), rest.end()}, {}, budget));
    } else {
      MOE_ASSIGN_OR_RETURN(item, GetPath(item, args[1], budget));
      if (item.IsUndefined()) item = args[2];
    }
  }
  return Value::MakeList(std::move(items));
}

// What Jinja2 compares: the attribute if one is given, in lower case unless case matters.
Result SortKey(const Value& item, const Value& attribute, bool case_sensitive, Budget& budget) {
  Value key = item;
  if (!attribute.IsUndefined() && !attribute.IsNone()) {
    MOE_ASSIGN_OR_RETURN(key, GetPath(item, attribute, budget));
  }
  if (case_sensitive || key.AsString() == nullptr) return key;
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(key.AsString()->size())));
  return Value(Lower(*key.AsString()));
}

struct Keyed {
  Value key;
  Value item;
};

// Orders by key; equal keys keep their order. INVALID_ARGUMENT unless all keys are numbers or all are strings.
absl::Status SortByKey(std::vector<Keyed>* items, bool reverse, Budget& budget) {
  int64_t bytes = 0;
  for (const Keyed& keyed : *items) {
    const bool comparable = keyed.key.IsNumber() || keyed.key.AsString() != nullptr;
    if (!comparable || keyed.key.IsNumber() != items->front().key.IsNumber()) {
      return absl::InvalidArgumentError(
          Concat("cannot order ", items->front().key.TypeName(), " and ", keyed.key.TypeName()));
    }
    bytes += kEvaluationCost + (keyed.key.IsNumber() ? 0 : static_cast<int64_t>(keyed.key.AsString()->size()));
  }
  // Each merge reads every key about twice.
  MOE_RETURN_IF_ERROR(budget.Charge(bytes * 2 * std::bit_width(items->size())));
  const auto less = [](const Value& a, const Value& b) {
    if (a.IsNumber()) return a.Number() < b.Number();
    return *a.AsString() < *b.AsString();  // the byte order of UTF-8 is the order of code points
  };
  std::ranges::stable_sort(
      *items, [&](const Keyed& a, const Keyed& b) { return reverse ? less(b.key, a.key) : less(a.key, b.key); });
  return absl::OkStatus();
}

Result SortedItems(std::vector<Keyed> keyed, bool reverse, Budget& budget) {
  MOE_RETURN_IF_ERROR(SortByKey(&keyed, reverse, budget));
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return Value::MakeList(std::move(items));
}

// sort(reverse = false, case_sensitive = false, attribute = none)
Result SortFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    MOE_ASSIGN_OR_RETURN(Value key, SortKey(item, args[2], args[1].IsTrue(), budget));
    keyed.push_back({std::move(key), item});
  }
  return SortedItems(std::move(keyed), args[0].IsTrue(), budget);
}

// dictsort(case_sensitive = false, by = 'key', reverse = false)
Result DictSortFilter(const Value& self, Args args, Budget& budget) {
  if (self.AsDict() == nullptr) return absl::InvalidArgumentError(Concat("needs a dict, not ", self.TypeName()));
  size_t part = 0;
  if (!args[1].IsUndefined()) {
    MOE_ASSIGN_OR_RETURN(const std::string* by, StringArgument(args[1], "by"));
    if (*by != "key" && *by != "value") return absl::InvalidArgumentError("'by' must be 'key' or 'value'");
    part = *by == "key" ? 0 : 1;
  }
  MOE_ASSIGN_OR_RETURN(const Value pairs, DictItems(*self.AsDict(), budget));
  std::vector<Keyed> keyed;
  for (const Value& pair : pairs.AsList()->items) {
    MOE_ASSIGN_OR_RETURN(Value key, SortKey(pair.AsList()->items[part], Value(), args[0].IsTrue(), budget));
    keyed.push_back({std::move(key), pair});
  }
  return SortedItems(std::move(keyed), args[2].IsTrue(), budget);
}

// groupby(attribute, default = none, case_sensitive = false): pairs of a value and the items that have it
Result GroupByFilter(const Value& self, Args args, Budget& budget) {
  static constexpr std::string_view kFields[] = {"grouper", "list"};
  if (args[0].IsUndefined()) return absl::InvalidArgumentError("'attribute' is missing");
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  const auto key_of = [&](const Value& item, bool case_sensitive) -> Result {
    MOE_ASSIGN_OR_RETURN(Value key, SortKey(item, args[0], case_sensitive, budget));
    return key.IsUndefined() ? args[1] : key;
  };
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    MOE_ASSIGN_OR_RETURN(Value key, key_of(item, args[2].IsTrue()));
    keyed.push_back({std::move(key), item});
  }
  MOE_RETURN_IF_ERROR(SortByKey(&keyed, /*reverse=*/false, budget));
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> group;
    for (bool same = true; end < keyed.size(); ++end) {
      MOE_ASSIGN_OR_RETURN(same, Compare(Comparison::kEqual, keyed[begin].key, keyed[end].key, budget));
      if (!same) break;
      group.push_back(keyed[end].item);
    }
    MOE_ASSIGN_OR_RETURN(Value grouper, key_of(group[0], /*case_sensitive=*/true));
    MOE_ASSIGN_OR_RETURN(Value list, Value::MakeList(std::move(group)));
    MOE_ASSIGN_OR_RETURN(Value pair, Value::MakeTuple({std::move(grouper), std::move(list)}, kFields));
    groups.push_back(std::move(pair));
  }
  return Value::MakeList(std::move(groups));
}

// batch(linecount, fill_with = none): lists of that many items
Result BatchFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const int64_t size, IntegerArgument(args[0], 0, "linecount"));
  if (size < 1) return absl::InvalidArgumentError("'linecount' must be at least 1");
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto end_batch = [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    MOE_ASSIGN_OR_RETURN(Value list, Value::MakeList(std::exchange(batch, {})));
    batches.push_back(std::move(list));
    return absl::OkStatus();
  };
  for (const Value& item : items) {
    batch.push_back(item);
    if (static_cast<int64_t>(batch.size()) == size) MOE_RETURN_IF_ERROR(end_batch());
  }
  if (!batch.empty()) {
    const bool fills = !args[1].IsUndefined() && !args[1].IsNone();
    if (fills) MOE_RETURN_IF_ERROR(budget.Charge(std::min(size, kMaxWork) * static_cast<int64_t>(sizeof(Value))));
    while (fills && static_cast<int64_t>(batch.size()) < size) batch.push_back(args[1]);
    MOE_RETURN_IF_ERROR(end_batch());
  }
  return Value::MakeList(std::move(batches));
}

// attr(name): of what has attributes
Result AttrFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::string* name, StringArgument(args[0], "name"));
  return self.AsDict() != nullptr ? Value() : GetAttribute(self, *name, budget);
}

// unique(case_sensitive = false, attribute = none)
Result UniqueFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    MOE_ASSIGN_OR_RETURN(Value key, SortKey(item, args[1], args[0].IsTrue(), budget));
    bool known = false;
    for (size_t i = 0; i < seen.size() && !known; ++i) {
      MOE_ASSIGN_OR_RETURN(known, Compare(Comparison::kEqual, seen[i], key, budget));
    }
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

// min and max (case_sensitive = false, attribute = none)
template <Comparison better>
Result ExtremeFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  Keyed best;
  for (size_t i = 0; i < items.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(Value key, SortKey(items[i], args[1], args[0].IsTrue(), budget));
    bool take = i == 0;
    if (!take) {
      MOE_ASSIGN_OR_RETURN(take, Compare(better, key, best.key, budget));
    }
    if (take) best = {std::move(key), items[i]};
  }
  return best.item;
}

// sum(attribute = none, start = 0)
Result SumFilter(const Value& self, Args args, Budget& budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(self, budget));
  Value sum = args[1].IsUndefined() ? Value(int64_t{0}) : args[1];
  for (const Value& item : items) {
    Value value = item;
    if (!args[0].IsUndefined() && !args[0].IsNone()) {
      MOE_ASSIGN_OR_RETURN(value, GetPath(item, args[0], budget));
    }
    MOE_RETURN_IF_ERROR(budget.Charge(kEvaluationCost));
    MOE_ASSIGN_OR_RETURN(sum, ApplyBinary(BinaryOperator::kAdd, sum, value, budget));
  }
  return sum;
}

constexpr Function kSequenceFilters[] = {
    {"attr", {"name"}, AttrFilter},
    {"batch", {"linecount", "fill_with"}, BatchFilter},
    {"dictsort", {"case_sensitive", "by", "reverse"}, DictSortFilter},
    {"first", {}, FirstFilter},
    {"groupby", {"attribute", "default", "case_sensitive"}, GroupByFilter},
    {"items", {}, ItemsFilter},
    {"join", {"d", "attribute"}, JoinFilter},
    {"last", {}, LastFilter},
    {"list", {}, ListFilter},
    {"map", {"filter", "attribute", "default"}, MapFilter, 1},
    {"max", {"case_sensitive", "attribute"}, ExtremeFilter<Comparison::kGreater>},
    {"min", {"case_sensitive", "attribute"}, ExtremeFilter<Comparison::kLess>},
    {"reject", {"test"}, SelectFilter<false>, 1},
    {"rejectattr", {"attribute", "test"}, SelectAttrFilter<false>, 2},
    {"reverse", {}, ReverseFilter},
    {"select", {"test"}, SelectFilter<true>, 1},
    {"selectattr", {"attribute", "test"}, SelectAttrFilter<true>, 2},
    {"sort", {"reverse", "case_sensitive", "attribute"}, SortFilter},
    {"sum", {"attribute", "start"}, SumFilter},
    {"unique", {"case_sensitive", "attribute"}, UniqueFilter},
};

}  // namespace

std::span<const Function> SequenceFilters() { return kSequenceFilters; }

}  // namespace moestro::text::jinja
