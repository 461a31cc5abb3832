// Where a model is on disk: a directory, a file in GGUF, or org/name in the cache that Hugging Face's tools share.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::checkpoint {

struct ModelLocation {
  std::string path;  // absolute: a directory that holds config.json, or the first GGUF file of a model
  std::string name;  // org/name for a directory of the cache, else the directory's own, or the file's without its end
};

// "org/name", of letters, digits, '-', '_' and '.'; no directory needs to exist.
bool IsRepositoryName(std::string_view model);

// `model` is a directory with config.json, a GGUF file of any name, a directory with one model in GGUF, a repository's
// directory in the cache (models--org--name), or org/name. A directory wins over a repository of that name. The cache
// is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Of a
// repository's snapshots, the one of refs/main is taken, or the only one. NOT_FOUND says where it looked, and which
// command downloads the model. INVALID_ARGUMENT: another file in place of a directory, several models in GGUF, a
// refs/main that names no snapshot, several snapshots without refs/main, a snapshot whose links lead nowhere.
absl::StatusOr<ModelLocation> LocateModel(const std::string& model);

}  // namespace moestro::checkpoint
