// A recording of which experts tokens were routed to, to be replayed without the model: caches, placements, predictors.
// ROUTING_TRACE.md is the file's format.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/moe/gating.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Of the model that was traced. Layers are counted from the first one with experts on.
struct RoutingTraceModel {
  std::string fingerprint;  // of its weights (SegmentHeader), 32 characters at most
  int64_t first_moe_layer = 0;
  int64_t moe_layers = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;

  int64_t choices_per_token() const { return moe_layers * experts_per_token; }
};

RoutingTraceModel TraceModelOf(const ModelSpec& spec, const std::string& fingerprint);

struct TracedToken {
  uint32_t sequence = 0;  // the same number: the same sequence
  uint32_t position = 0;
  bool prompt = false;  // else it was generated
};

// One forward pass.
struct RoutingStep {
  std::vector<TracedToken> tokens;
  std::vector<ExpertChoice> choices;  // [tokens, moe_layers, experts_per_token], a token's in ascending id
};

class RoutingTraceWriter {
 public:
  // Replaces the file. INVALID_ARGUMENT names the path, or what in the model the format cannot hold.
  static absl::StatusOr<std::unique_ptr<RoutingTraceWriter>> Create(const std::string& path,
                                                                    const RoutingTraceModel& model);

  // A pass over these tokens begins. What was told of one that has not ended is forgotten.
  void Begin(std::span<const TracedToken> tokens);
  // Choices of tokens first_row, first_row + 1, ... in a layer of the model (dense layers counted). Threads may tell of
  // different tokens at the same time.
  void Note(int64_t layer, int64_t first_row, std::span<const ExpertChoice> choices);
  // Appends the pass, all of whose choices have been told. UNAVAILABLE names the path if it cannot be written, from
  // then on always.
  absl::Status End();

 private:
  RoutingTraceWriter(const std::string& path, const RoutingTraceModel& model);

  const std::string path_;
  const RoutingTraceModel model_;
  std::ofstream file_;
  RoutingStep step_;
  std::vector<char> bytes_;  // of a step
};

class RoutingTraceReader {
 public:
  // INVALID_ARGUMENT names the path and what is wrong: no such file, no trace, a version that this program does not
  // read, sizes that no model has.
  static absl::StatusOr<std::unique_ptr<RoutingTraceReader>> Open(const std::string& path);

  const RoutingTraceModel& model() const { return model_; }
  // The next pass; false behind the last one. DATA_LOSS names the path and the pass where the file is cut off or names
  // experts that the model does not have.
  absl::StatusOr<bool> Next(RoutingStep& step);

 private:
  explicit RoutingTraceReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {}
  absl::Status ReadHeader();
  absl::Status ReadStep(int64_t tokens, RoutingStep& step);
  bool Read(void* to, size_t bytes);

  const std::string path_;
  std::ifstream file_;
  RoutingTraceModel model_;
  int64_t steps_ = 0;  // that have been read
  std::vector<char> bytes_;
};

}  // namespace moestro
