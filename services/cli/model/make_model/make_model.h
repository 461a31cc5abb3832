// Writes a checkpoint in the exact layout of a published one, with reproducible random weights: for tests, demos and
// measurements on machines that cannot hold (or download) the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace moestro::cli {

struct MakeModelOptions {
  std::string preset = "tiny";  // of MakeModelPresets()
  // Created; must be absent or an empty directory unless `force`. FILE.gguf: a file in GGUF, else a directory.
  std::string out_dir = {};
  uint64_t seed = 1;        // same options and seed give the same bytes on every machine
  int layers = 0;           // decoder layers; 0 = the preset's
  int experts = 0;          // routed experts per layer; 0 = the preset's. Groups and experts per token adapt
  int vocab_rows = 0;       // rows of embedding and head; 0 = the preset's
  int64_t shard_bytes = 0;  // tensor bytes after which a new shard starts; 0 = the preset's
  // Of MakeModelWeights(): "fp8": E4M3 with 128x128 block scales; "bf16": the same weights, dequantised; "int4" and
  // "mxfp4": so, and their routed experts rounded to four bits in groups of 32, as compressed-tensors keeps them;
  // "int8" and "w8a8_int8": so, and linear layers rounded to eight bits by row, as compressed-tensors (all but
  // kv_b_proj) and SGLang (all) say it; of GGUF, which has "bf16" and "mxfp4" as well: "f16", "q8_0", "q6_k", "q4_k_m",
  // "q4_0"; empty: the preset's, in GGUF "bf16"
  std::string weights = {};
  // Replace an existing checkpoint in out_dir (only a directory that holds config.json, or a GGUF file).
  bool force = false;

  bool gguf() const { return out_dir.ends_with(".gguf"); }
};

// Names and descriptions.
std::vector<std::pair<std::string, std::string>> MakeModelPresets();

std::vector<std::string> MakeModelWeights();

// Bytes of tensor data written so far and in total. The writing threads call it, one call at a time.
using MakeModelProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

// Writes into "<out_dir>.partial" and renames it at the end, so out_dir is either complete or untouched. The next run
// replaces what a killed run left there. Uses a few megabytes for a model of any size. `progress` may be null.
// Errors: INVALID_ARGUMENT (an option), ALREADY_EXISTS (out_dir is not empty), FAILED_PRECONDITION (`force` on a
// directory that is not a checkpoint, or another run writes to the same directory), RESOURCE_EXHAUSTED (disk space),
// UNAVAILABLE (a file operation failed: the message names the file).
absl::Status MakeModel(const MakeModelOptions& options, const MakeModelProgress& progress);

}  // namespace moestro::cli
