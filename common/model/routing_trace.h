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
  std::string fingerprint = {};  // of its weights (SegmentHeader), at most 32 characters
  int64_t first_moe_layer = 0;
  int64_t moe_layers = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t scores_per_token = 0;  // next-best experts with their scores; 0: not recorded
  int64_t predicted_layers = 0;  // predictions of each layer's experts; 0: not recorded

  int64_t choices_per_token() const { return moe_layers * experts_per_token; }
  int64_t others_per_token() const { return moe_layers * scores_per_token; }
  int64_t set_bytes() const { return (num_experts + 7) / 8; }  // of a set of experts
  // Where RoutingStep::predicted has the set that the `ahead`-th layer before (1 to predicted_layers) predicted.
  int64_t SetAt(int64_t token, int64_t moe_layer, int64_t ahead) const {
    return ((token * moe_layers + moe_layer) * predicted_layers + ahead - 1) * set_bytes();
  }
};

// INVALID_ARGUMENT names the property that the format cannot hold.
absl::Status CheckTraceModel(const RoutingTraceModel& model);

inline constexpr int64_t kMaxPassTokens = 1 << 16;
// Layers before the predicted one whose predictions a trace holds at most (HybriMoE, section IV-C: three).
inline constexpr int64_t kMaxPredictedLayers = 3;

// Of choices alone.
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
  std::vector<ExpertChoice> others;   // [tokens, moe_layers, scores_per_token]: the next-best, likewise
  // Bits [tokens, moe_layers, predicted_layers, set_bytes]: the experts that earlier layers predicted. Sets are empty
  // where there is no such layer.
  std::vector<uint8_t> predicted;
};

class RoutingTraceWriter {
 public:
  // Replaces the file. INVALID_ARGUMENT names the path, or the property of the model that the format cannot hold.
  static absl::StatusOr<std::unique_ptr<RoutingTraceWriter>> Create(const std::string& path,
                                                                    const RoutingTraceModel& model);

  const RoutingTraceModel& model() const { return model_; }

  // Begins a pass over these tokens. Discards what was noted of a pass that has not ended.
  void Begin(std::span<const TracedToken> tokens);
  // The next three: of a layer, by its index among the MoE layers. Threads may report different tokens concurrently.
  // Choices of tokens first_row, first_row + 1, ...
  void Note(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> choices);
  // The same tokens' next-best experts, scores_per_token each.
  void NoteOthers(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> others);
  // What the `ahead`-th layer before predicted for a token. Without a call: nothing.
  void NotePrediction(int64_t moe_layer, int64_t row, int64_t ahead, std::span<const ExpertChoice> experts);
  // Appends the pass, whose choices and next-best experts must be complete. UNAVAILABLE names the path if it cannot be
  // written, then and ever after.
  absl::Status End();

  // Appends a whole pass.
  absl::Status Append(const RoutingStep& step);

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
  // Reads versions 1 and 2. INVALID_ARGUMENT names the path and the fault: no such file, not a trace, an unsupported
  // version, sizes of no model.
  static absl::StatusOr<std::unique_ptr<RoutingTraceReader>> Open(const std::string& path);

  const RoutingTraceModel& model() const { return model_; }
  // The next pass; false after the last one. DATA_LOSS names the path and the pass if the file is truncated or names
  // experts that the model lacks. Memory grows with what the file has, not with what it promises.
  absl::StatusOr<bool> Next(RoutingStep& step);

 private:
  explicit RoutingTraceReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {}
  absl::Status ReadHeader();
  absl::Status ReadStep(int64_t tokens, RoutingStep& step);
  absl::Status ReadExperts(int64_t rows, int64_t per_row, std::vector<ExpertChoice>& experts);
  absl::Status CheckSets(const RoutingStep& step) const;
  bool Read(void* to, size_t bytes);
  bool ReadBytes(int64_t bytes);  // to bytes_

  const std::string path_;
  std::ifstream file_;
  RoutingTraceModel model_;
  int64_t steps_ = 0;        // steps read so far
  std::vector<char> bytes_;  // read last
};

}  // namespace moestro::model
