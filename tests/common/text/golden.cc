#include "tests/common/text/golden.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace moestro::text {

std::string ReadGolden(const std::string& name) {
  const std::string path = "tests/golden/text/" + name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path << ": cannot be read; run the test from the root of the repository";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

nlohmann::json ReadGoldenJson(const std::string& name) {
  nlohmann::json json = nlohmann::json::parse(ReadGolden(name), nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << name;
  return json;
}

std::unique_ptr<const Tokenizer> MakeTokenizer(const nlohmann::json& tokenizer_json) {
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer =
      Tokenizer::Create({.tokenizer_json = tokenizer_json.dump()});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace moestro::text
