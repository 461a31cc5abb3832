// The header of one GGUF file: metadata, and the layout of the tensors behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/gguf/gguf_metadata.h"
#include "common/checkpoint/tensor_file.h"

namespace moestro::checkpoint {

inline constexpr std::string_view kGgufMagic = "GGUF";  // the first bytes of a file

// Vocabularies make headers of some 20 MB. What a header may become in memory follows from both limits.
inline constexpr int64_t kMaxGgufHeaderBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxGgufArrayElements = int64_t{1} << 24;  // of all arrays together

// What to do about weights of a type that is not loaded.
inline constexpr char kGetOtherTypes[] =
    "get the model as Q4_K_M, Q6_K, Q8_0 or BF16, or make it so with llama.cpp's llama-quantize";

struct GgufHeader {
  GgufMetadata metadata;
  // In the order of the file, with its names. The shape is row-major, the reverse of the file's: a linear layer is
  // [outputs, inputs], stacked experts are [experts, outputs, inputs]. dtype is absent for types of ggml that this
  // engine has no kernels for.
  std::vector<TensorInfo> tensors;
  std::string hash;  // XXH3-128 of the header, 32 hex digits
};

// Reads no further than the header, a megabyte at a time. Versions 2 and 3, little-endian.
// INVALID_ARGUMENT, with the path and the key or tensor: another magic or version; counts, lengths and sizes that the
// file cannot hold; unknown types of values or tensors; arrays of arrays; empty or duplicate names; an alignment that
// is no power of two; tensors whose rows are not whole blocks, that overlap, or that are not in the file.
absl::StatusOr<GgufHeader> ReadGgufHeader(const ReadOnlyFile& file);

}  // namespace moestro::checkpoint
