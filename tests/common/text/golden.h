// Golden files of this folder's tests, which must run from the root of the repository.
#pragma once

#include <memory>
#include <string>

#include "common/text/tokenizer.h"
#include "nlohmann/json.hpp"

namespace moestro::text {

// Bytes of tests/golden/text/<name>; fails the test if there is no such file.
std::string ReadGolden(const std::string& name);
nlohmann::json ReadGoldenJson(const std::string& name);

// The tokenizer of the JSON; fails the test if it does not parse.
std::unique_ptr<const Tokenizer> MakeTokenizer(const nlohmann::json& tokenizer_json);

}  // namespace moestro::text
