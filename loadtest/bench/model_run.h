// Times the engine over the weights of a loaded model, as llama-bench times a model file: a prompt from an empty cache,
// then single tokens from an empty cache. Also times the routed experts alone, as kt-kernel runs them. loadtest/peers
// compares them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/dispatch.h"
#include "common/weights/segment.h"
#include "loadtest/bench/machine.h"

namespace moestro::bench {

struct ModelRunOptions {
  int threads = 0;  // 0: every core available to this process
  int repetitions = 3;
  int64_t prompt_tokens = 512;
  int64_t decode_tokens = 64;
  Int8Activations int8_activations = Int8Activations::kPublished;
};

// One repetition. Its times follow each other, so that they meet the same state of the machine.
struct ModelRepetition {
  double read_bytes_per_second = 0;  // all threads read the weights
  double prompt_seconds = 0;         // one pass over all prompt tokens, with the last one's logits
  double decode_seconds = 0;         // of all decoded tokens, each with its logits
  // The same rows through the routed experts of all layers alone, each row to new random experts. 0: no such layers.
  double experts_prompt_seconds = 0;
  double experts_decode_seconds = 0;
};

struct ModelRun {
  std::string date;  // "2026-11-22", in UTC
  Machine machine;
  ModelRunOptions options;  // with the number of threads that ran
  std::string family;
  int64_t layers = 0;
  int64_t segment_bytes = 0;
  int64_t segment_huge_bytes = 0;  // of these, on huge pages; all pages have been read
  double prompt_operations = 0;    // multiplications and additions
  double experts_token_bytes = 0;  // weights of the routed experts that one token is sent to, in all layers
  double decode_token_bytes = 0;   // weights and KV of a token in the middle of the decoded ones; scales as stored
  std::vector<ModelRepetition> repetitions;
};

inline constexpr char kModelRunSchema[] = "moestro-bench-model-1";

// Random tokens, different in every repetition. One repetition before the others warms up and does not count.
// INVALID_ARGUMENT names the flag of an option out of range; RESOURCE_EXHAUSTED if KV pages do not fit the memory;
// errors of Engine::Create and Forward.
absl::StatusOr<ModelRun> MeasureModel(const weights::WeightSegment& segment, const ModelRunOptions& options);
// The same for the segment of this name. Errors of WeightSegment::Open, too.
absl::StatusOr<ModelRun> MeasureModel(const std::string& segment_name, const ModelRunOptions& options);

nlohmann::json ModelRunJson(const ModelRun& run);

}  // namespace moestro::bench
