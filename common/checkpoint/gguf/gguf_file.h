// A model in GGUF: one file, or the set of files that it was split into.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_metadata.h"
#include "common/checkpoint/tensor_file.h"

namespace moestro::checkpoint {

// Every file stays open: a process has some 1000 descriptors.
inline constexpr int kMaxGgufSplits = 512;

struct GgufModel {
  GgufMetadata metadata;          // of the first file
  std::vector<TensorFile> files;  // in the order of the set; tensors have the names of the file
};

// Whether `path` is a file that ends in .gguf, in any case, or begins as GGUF files do: blobs of a store have names
// without an end.
bool IsGguf(const std::string& path);

// The name of a model by its file: without directory, ".gguf" and "-00001-of-00003".
std::string GgufModelName(const std::string& path);

// The file to open of the only model in the directory, or in one of those right below it: publishers have a directory
// for each set of files. Files of image encoders ("mmproj") do not count. NOT_FOUND if there is none; INVALID_ARGUMENT
// lists several.
absl::StatusOr<std::string> FindGguf(const std::string& directory);

// `path`: a file, the first one of a set, whose others lie beside it under the names that llama.cpp gives them.
// Errors of ReadOnlyFile::Open and ReadGgufHeader. INVALID_ARGUMENT: another file of a set than the first, files that
// do not belong together, tensors that are in two files or lacking.
absl::StatusOr<GgufModel> OpenGguf(const std::string& path);

}  // namespace moestro::checkpoint
