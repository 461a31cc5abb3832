// The metadata of a GGUF file: typed values by key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace moestro::checkpoint {

// Integers of every width are int64: writers disagree about widths. float and double stay what they were, so that a
// float is written as the shortest decimal that means it. Text may be any bytes: check for UTF-8 what goes on.
using GgufValue = std::variant<bool, int64_t, float, double, std::string, std::vector<bool>, std::vector<int64_t>,
                               std::vector<float>, std::vector<double>, std::vector<std::string>>;

// "an integer", "an array of texts": what a message calls it.
const char* GgufTypeName(const GgufValue& value);

class GgufMetadata {
 public:
  // `label` (the path) begins every message.
  explicit GgufMetadata(std::string label) : label_(std::move(label)) {}

  // False if the key is there already; nothing changes then.
  bool Insert(std::string key, GgufValue value) { return values_.try_emplace(std::move(key), std::move(value)).second; }

  bool Has(std::string_view key) const { return values_.contains(key); }
  // Nullptr if absent.
  const GgufValue* Find(std::string_view key) const;

  // Values that must be there and have the type: INVALID_ARGUMENT names the key otherwise. The pointers are valid as
  // long as the metadata.
  absl::StatusOr<int64_t> Integer(std::string_view key, int64_t least, int64_t most) const;
  absl::StatusOr<bool> Flag(std::string_view key) const;
  absl::StatusOr<const std::string*> Text(std::string_view key) const;
  absl::StatusOr<const std::vector<std::string>*> Texts(std::string_view key) const;
  absl::StatusOr<const std::vector<int64_t>*> Integers(std::string_view key) const;
  absl::StatusOr<const std::vector<float>*> Floats(std::string_view key) const;

  // The error of a value that cannot be used: "<label>: metadata 'key': <why>".
  absl::Status Wrong(std::string_view key, absl::string_view why) const;
  absl::Status NotSupported(std::string_view key, absl::string_view why) const;

  const std::string& label() const { return label_; }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  template <typename T>
  absl::StatusOr<const T*> Get(std::string_view key) const;

  std::string label_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace moestro::checkpoint
