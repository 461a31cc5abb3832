// Records the experts to which tokens were routed, to replay them without the model: caches, placements, predictors.
// ROUTING_TRACE.md specifies the file format.
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

namespace moestro::model {

// The traced model. Only its MoE layers are counted.
struct RoutingTraceModel {
  std::string fingerprint;  // of its weights (SegmentHeader), at most 32 characters
  int64_t first_moe_layer = 0;
  int64_t moe_layers = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;

  int64_t choices_per_token() const { return moe_layers * experts_per_token; }
};

RoutingTraceModel TraceModelOf(const weights::ModelSpec& spec, const std::string& fingerprint);

struct TracedToken {
  uint32_t sequence = 0;  // equal numbers: the same sequence
  uint32_t position = 0;
  bool prompt = false;  // false: generated
};

// One forward pass.
struct RoutingStep {
  std::vector<TracedToken> tokens;
  std::vector<ExpertChoice> choices;  // [tokens, moe_layers, experts_per_token], ascending ids in each row
};

class RoutingTraceWriter {
 public:
  // Replaces the file. INVALID_ARGUMENT names the path, or the property of the model that the format cannot hold.
  static absl::StatusOr<std::unique_ptr<RoutingTraceWriter>> Create(const std::string& path,
                                                                    const RoutingTraceModel& model);

  // Begins a pass over these tokens. Discards the choices of a pass that has not ended.
  void Begin(std::span<const TracedToken> tokens);
  // Choices of tokens first_row, first_row + 1, ... in a layer, by its index among the MoE layers. Threads may report
  // different tokens concurrently.
  void Note(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> choices);
  // Appends the pass, whose choices must be complete. UNAVAILABLE names the path if it cannot be written, then and ever
  // after.
  absl::Status End();

 private:
  RoutingTraceWriter(const std::string& path, const RoutingTraceModel& model);

  const std::string path_;
  const RoutingTraceModel model_;
  std::ofstream file_;
  RoutingStep step_;
  std::vector<char> bytes_;  // of one step
};

class RoutingTraceReader {
 public:
  // INVALID_ARGUMENT names the path and the fault: no such file, not a trace, an unsupported version, sizes of no
  // model.
  static absl::StatusOr<std::unique_ptr<RoutingTraceReader>> Open(const std::string& path);

  const RoutingTraceModel& model() const { return model_; }
  // The next pass; false after the last one. DATA_LOSS names the path and the pass if the file is truncated or names
  // experts that the model lacks.
  absl::StatusOr<bool> Next(RoutingStep& step);

 private:
  explicit RoutingTraceReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {}
  absl::Status ReadHeader();
  absl::Status ReadStep(int64_t tokens, RoutingStep& step);
  bool Read(void* to, size_t bytes);

  const std::string path_;
  std::ifstream file_;
  RoutingTraceModel model_;
  int64_t steps_ = 0;  // steps read so far
  std::vector<char> bytes_;
};

}  // namespace moestro::model
