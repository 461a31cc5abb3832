// Metadata of GGUF files that are written as JSON: tests/golden/text/gguf_kinds.py.
#pragma once

#include <nlohmann/json.hpp>

#include "common/checkpoint/gguf/gguf_metadata.h"

namespace moestro::testing {

// An object of booleans, integers, floats, texts, and arrays of one of these that are not empty.
inline checkpoint::GgufMetadata MetadataFromJson(const nlohmann::json& object) {
  checkpoint::GgufMetadata metadata("model.gguf");
  for (const auto& [key, value] : object.items()) {
    const nlohmann::json& first = value.is_array() ? value.at(0) : value;
    const auto insert = [&]<typename T>(T) {
      if (value.is_array()) {
        metadata.Insert(key, value.template get<std::vector<T>>());
      } else {
        metadata.Insert(key, value.template get<T>());
      }
    };
    if (first.is_string()) {
      insert(std::string());
    } else if (first.is_boolean()) {
      insert(false);
    } else if (first.is_number_integer()) {
      insert(int64_t{});
    } else {
      insert(float{});
    }
  }
  return metadata;
}

}  // namespace moestro::testing
