// The small files of a checkpoint, as they are on disk.
#pragma once

#include <string>

namespace moestro {

// Empty where the checkpoint has no such file; only config.json is always there.
struct CheckpointDocuments {
  std::string config_json = {};
  std::string generation_config_json = {};
  std::string tokenizer_json = {};
  std::string tokenizer_config_json = {};
  std::string chat_template_jinja = {};
};

}  // namespace moestro
