// The rows of one forward pass, checked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Rows [begin, end) belong to one sequence and have consecutive positions.
struct SequenceRun {
  int64_t begin = 0;
  int64_t end = 0;
};

struct CheckedBatch {
  std::span<const EngineRow> rows;
  std::span<const kv::KvPages> sequences;
  std::vector<SequenceRun> runs;
  MlaForm form = MlaForm::kAbsorbed;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  const kv::KvPages& pages(int64_t row) const { return sequences[rows[row].sequence]; }
};

// INVALID_ARGUMENT names the row and the fault.
absl::StatusOr<CheckedBatch> CheckBatch(const weights::ModelSpec& spec, int64_t max_rows, const ForwardBatch& batch);
// The same into `checked`, whose memory is reused.
absl::Status CheckBatch(const weights::ModelSpec& spec, int64_t max_rows, const ForwardBatch& batch,
                        CheckedBatch& checked);

}  // namespace moestro::model
