// Prints the text documents that the metadata of a GGUF file stand for, to compare their tokenizer with the reference
// libraries (tests/golden/text/fuzz.py). The input is the metadata as JSON, the output an object of documents by name.
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/checkpoint/gguf/gguf_texts.h"
#include "tests/common/checkpoint/gguf/metadata_json.h"

int main() {
  const nlohmann::json input = nlohmann::json::parse(std::cin);
  moestro::checkpoint::CheckpointDocuments documents;
  const absl::Status status =
      moestro::checkpoint::AddGgufTexts(moestro::testing::MetadataFromJson(input), INT32_MAX, &documents);
  if (!status.ok()) {
    std::cerr << status << '\n';
    return 2;
  }
  nlohmann::json output;
  const auto print = [&](const char* name, const std::string& document) {
    if (!document.empty()) output[name] = document;
  };
  print("tokenizer.json", documents.tokenizer_json);
  print("tiktoken.model", documents.tiktoken_ranks);
  print("tokenizer_config.json", documents.tokenizer_config_json);
  std::cout << output << '\n';
  return 0;
}
