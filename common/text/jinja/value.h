// The values of a template: the Python types that templates need. All are immutable except namespaces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::text::jinja {

class Budget;
class Value;
struct MacroNode;
struct Caller;
struct List;
struct Dict;

// The only mutable value, made by namespace(). The rendering owns it, so that cycles cannot leak.
using Namespace = std::map<std::string, Value>;

// A function called by its name.
enum class Builtin { kNamespace, kRange, kRaiseException, kDict, kStrftimeNow };

// Cheap to copy. Default-constructed: undefined.
class Value {
 public:
  struct Undefined {};
  struct None {};
  // An integer that int64_t cannot hold, by its decimal digits: it is printed and compared, and nothing is computed of
  // it.
  struct BigInteger {
    std::shared_ptr<const std::string> digits;
  };
  using String = std::shared_ptr<const std::string>;
  // A text that `safe` or `escape` made: what is joined to it with + is escaped.
  struct Markup {
    String text;
  };
  using ListPointer = std::shared_ptr<const List>;
  using DictPointer = std::shared_ptr<const Dict>;

  Value();
  Value(None none) : data_(none) {}                         // NOLINT: values convert from what they hold
  Value(bool value) : data_(value) {}                       // NOLINT
  Value(int64_t value) : data_(value) {}                    // NOLINT
  Value(double value) : data_(value) {}                     // NOLINT
  Value(BigInteger integer) : data_(std::move(integer)) {}  // NOLINT
  Value(Builtin builtin) : data_(builtin) {}                // NOLINT
  Value(Namespace* space) : data_(space) {}                 // NOLINT
  Value(const MacroNode* macro) : data_(macro) {}           // NOLINT
  Value(const Caller* caller) : data_(caller) {}            // NOLINT
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}  // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}                                // NOLINT
  Value(const char* text) : Value(std::string(text)) {}                                     // NOLINT

  static Value MakeMarkup(std::string text);
  // RESOURCE_EXHAUSTED if the members are nested at the limit.
  static absl::StatusOr<Value> MakeList(std::vector<Value> items);
  // `fields`: names of the items, which live for ever; none: a plain tuple.
  static absl::StatusOr<Value> MakeTuple(std::vector<Value> items, std::span<const std::string_view> fields = {});
  // A duplicate key keeps its position and takes the later value.
  static absl::StatusOr<Value> MakeDict(std::vector<std::pair<std::string, Value>> items);

  bool IsUndefined() const { return Is<Undefined>(); }
  bool IsNone() const { return Is<None>(); }
  // Null if the value has another type.
  const bool* AsBool() const { return std::get_if<bool>(&data_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&data_); }
  const double* AsFloat() const { return std::get_if<double>(&data_); }
  const std::string* AsString() const { return IsMarkup() ? std::get<Markup>(data_).text.get() : Pointee<String>(); }
  bool IsMarkup() const { return Is<Markup>(); }
  const std::string* AsBigDigits() const {
    return Is<BigInteger>() ? std::get<BigInteger>(data_).digits.get() : nullptr;
  }
  const List* AsList() const { return Pointee<ListPointer>(); }
  const Dict* AsDict() const { return Pointee<DictPointer>(); }
  Namespace* AsNamespace() const { return Is<Namespace*>() ? std::get<Namespace*>(data_) : nullptr; }
  const MacroNode* AsMacro() const { return Is<const MacroNode*>() ? std::get<const MacroNode*>(data_) : nullptr; }
  const Caller* AsCaller() const { return Is<const Caller*>() ? std::get<const Caller*>(data_) : nullptr; }
  const Builtin* AsBuiltin() const { return std::get_if<Builtin>(&data_); }
  // Integers and booleans, which count as 0 and 1.
  bool IsIntegral() const { return Is<bool>() || Is<int64_t>(); }
  int64_t Integral() const {
    return Is<bool>() ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
  }
  bool IsNumber() const { return IsIntegral() || Is<double>(); }
  double Number() const { return Is<double>() ? std::get<double>(data_) : static_cast<double>(Integral()); }

  // Python's truth value: false for undefined, none, false, zero and anything empty.
  bool IsTrue() const;
  // Name of the type for messages: "string", "list", ...
  std::string_view TypeName() const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename Pointer>
  const typename Pointer::element_type* Pointee() const {
    const Pointer* pointer = std::get_if<Pointer>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, String, ListPointer, DictPointer, Namespace*, const MacroNode*,
               const Caller*, Builtin, BigInteger, Markup>
      data_;
};

// Tuples are lists that print otherwise.
struct List {
  std::vector<Value> items;
  int depth;  // 1 + the greatest depth of the items
  bool is_tuple = false;
  std::span<const std::string_view> fields = {};  // of a tuple: names of the items
};

// The text under which a dict keeps a key. A key that is no string has a byte before it that UTF-8 does not have.
// INVALID_ARGUMENT for what cannot be a key here: anything but strings, numbers and none.
absl::StatusOr<std::string> DictKey(const Value& key);
// The key that is kept so.
Value KeyOf(std::string_view kept);

// By DictKey, in insertion order. Dicts come from messages and literals, so they are small.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  int depth;

  // Null if the key is absent.
  absl::StatusOr<const Value*> Find(std::string_view key, Budget& budget) const;
};

}  // namespace moestro::text::jinja
