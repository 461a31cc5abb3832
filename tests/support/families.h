// Families of models, each in one place: as it is published, in config.json and in GGUF, and with small sizes.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/gguf_builder.h"

namespace moestro::testing {

// Names without the architecture before them, and values: digits are integers; with a point or an exponent, a float;
// true and false are flags; anything else is text. test.rows: rows of the embedding, where no key says them.
using GgufKeys = std::map<std::string, std::string>;

// Of "block_count=61 rope.freq_base=1e4 expert_weights_norm=true".
GgufKeys Keys(const std::string& text);

struct Family {
  std::string published;  // one of PublishedModels()
  std::string architecture;
  GgufKeys keys;
  std::vector<std::string> tensors;  // that settings follow from
  std::vector<float> divisors = {};  // rope_freqs.weight
  nlohmann::json config = {};
};

// Some have two rows, for files with and without newer keys.
std::vector<Family> PublishedFamilies();
// REQUIRES a model of these; its first row.
Family PublishedFamily(const std::string& model);
// Two layers, three experts; heads are as wide as published. `tensors` are not those of so few layers.
Family TinyFamily(const std::string& model);

// The keys, and the divisors' tensor.
void AddMetadata(const Family& family, GgufBuilder* file);

}  // namespace moestro::testing
