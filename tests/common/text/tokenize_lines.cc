// Tokenizes what a script sends, to compare many texts with the reference libraries (tests/golden/text/fuzz.py).
//
//   text_tokenize_lines DIR     DIR has tokenizer.json, or tiktoken.model and tokenizer_config.json, which may ask for
//   BOS
//
// Each line of the input is JSON. For a string the answer has its ids, with control tokens matched and with all text
// plain. For an array of ids it has their text, at once and token by token.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace moestro::text {
namespace {

using nlohmann::json;

std::string ReadIfPresent(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

json Ids(const absl::StatusOr<std::vector<int32_t>>& ids) {
  return ids.ok() ? json(*ids) : json(std::string(ids.status().message()));
}

json Answer(const Tokenizer& tokenizer, const json& line) {
  if (line.is_string()) {
    const auto text = line.get<std::string>();
    return {{"parsed", Ids(tokenizer.Encode(text, {.add_special_tokens = true, .parse_special_tokens = true}))},
            {"plain", Ids(tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false}))}};
  }
  const auto ids = line.get<std::vector<int32_t>>();
  IncrementalDetokenizer detokenizer(tokenizer, /*skip_special=*/true);
  std::string streamed;
  for (const int32_t id : ids) streamed += detokenizer.Push(id);
  streamed += detokenizer.Flush();
  return {{"kept", tokenizer.Decode(ids, /*skip_special=*/false)},
          {"skipped", tokenizer.Decode(ids, /*skip_special=*/true)},
          {"streamed", streamed}};
}

int Run(const std::string& dir) {
  const std::string tokenizer_json = ReadIfPresent(dir + "/tokenizer.json");
  const std::string ranks = ReadIfPresent(dir + "/tiktoken.model");
  const std::string config = ReadIfPresent(dir + "/tokenizer_config.json");
  const json settings = config.empty() ? json::object() : json::parse(config);
  TokenizerConfig begin;
  begin.bos_token = settings.value("bos_token", "");
  begin.add_bos_token = settings.value("add_bos_token", false);
  const auto tokenizer = Tokenizer::Create(
      {.tokenizer_json = tokenizer_json, .tiktoken_ranks = ranks, .tokenizer_config_json = config}, begin);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << '\n';
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(**tokenizer, json::parse(line)).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace moestro::text

int main(int argc, char** argv) {
  if (argc == 2) return moestro::text::Run(argv[1]);
  std::cerr << "usage: text_tokenize_lines DIR\n";
  return 2;
}
