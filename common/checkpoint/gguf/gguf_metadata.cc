#include "common/checkpoint/gguf/gguf_metadata.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

// By index of the variant.
constexpr const char* kTypeNames[] = {"a boolean",
                                      "an integer",
                                      "a float",
                                      "a double",
                                      "text",
                                      "an array of booleans",
                                      "an array of integers",
                                      "an array of floats",
                                      "an array of doubles",
                                      "an array of texts"};
static_assert(std::size(kTypeNames) == std::variant_size_v<GgufValue>);

std::string Message(const std::string& label, std::string_view key, absl::string_view why) {
  return absl::StrCat(label, ": metadata ", text::Quoted(key), ": ", why);
}

}  // namespace

const char* GgufTypeName(const GgufValue& value) { return kTypeNames[value.index()]; }

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::Status GgufMetadata::Wrong(std::string_view key, absl::string_view why) const {
  return absl::InvalidArgumentError(Message(label_, key, why));
}

absl::Status GgufMetadata::NotSupported(std::string_view key, absl::string_view why) const {
  return absl::UnimplementedError(Message(label_, key, why));
}

template <typename T>
absl::StatusOr<const T*> GgufMetadata::Get(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return Wrong(key, "missing");
  if (const T* const typed = std::get_if<T>(value)) return typed;
  return Wrong(key, absl::StrCat("is ", GgufTypeName(*value), ", not ", GgufTypeName(GgufValue(T()))));
}

absl::StatusOr<int64_t> GgufMetadata::Integer(std::string_view key, int64_t least, int64_t most) const {
  MOE_ASSIGN_OR_RETURN(const int64_t* const value, Get<int64_t>(key));
  if (*value < least || *value > most) {
    return Wrong(key, absl::StrCat(*value, " is not from ", least, " to ", most));
  }
  return *value;
}

absl::StatusOr<bool> GgufMetadata::Flag(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const bool* const value, Get<bool>(key));
  return *value;
}

absl::StatusOr<const std::string*> GgufMetadata::Text(std::string_view key) const { return Get<std::string>(key); }

absl::StatusOr<const std::vector<std::string>*> GgufMetadata::Texts(std::string_view key) const {
  return Get<std::vector<std::string>>(key);
}

absl::StatusOr<const std::vector<int64_t>*> GgufMetadata::Integers(std::string_view key) const {
  return Get<std::vector<int64_t>>(key);
}

absl::StatusOr<const std::vector<float>*> GgufMetadata::Floats(std::string_view key) const {
  return Get<std::vector<float>>(key);
}

}  // namespace moestro::checkpoint
