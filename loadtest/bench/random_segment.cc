#include "loadtest/bench/random_segment.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "common/checkpoint/segment_plan.h"
#include "common/model/schema.h"
#include "common/report/number.h"
#include "common/tensor/pack.h"
#include "common/weights/checksum.h"
#include "common/weights/segment_writer.h"

namespace moestro::bench {
namespace {

constexpr char kNoFingerprint[] = "00000000000000000000000000000000";
// Router logits spread over most of the sigmoid's range, so that tokens choose different experts.
constexpr double kRouterGain = 1.5;

// Norms are 1; the router's weights are random; its bias stays 0.
void FillFloats(const weights::TensorPlan& tensor, float* values) {
  const int64_t count = tensor.rows * tensor.cols;
  if (tensor.name.ends_with("e_score_correction_bias")) return;
  if (!tensor.name.ends_with("mlp.gate.weight")) {
    std::fill_n(values, count, 1.0f);
    return;
  }
  const RandomWords words(4, tensor.name);
  // A uniform value with this bound has the wanted deviation.
  const double bound = kRouterGain * std::sqrt(3.0 / static_cast<double>(tensor.cols));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(bound * (static_cast<double>(words[i] >> 40) * 0x1p-23 - 1));
  }
}

double UnitDeviation(const weights::TensorPlan& tensor) { return 1 / std::sqrt(static_cast<double>(tensor.cols)); }

}  // namespace

absl::StatusOr<RandomSegment> MakeRandomSegment(WorkerPool& pool, const weights::ModelSpec& spec) {
  MOE_ASSIGN_OR_RETURN(const std::vector<weights::TensorPlan> plan, checkpoint::PlanShapes(spec, /*fp8=*/true));
  RandomSegment result;
  MOE_ASSIGN_OR_RETURN(result.memory, HugeBuffer::Allocate(weights::SegmentWriter::RequiredBytes(plan)));
  MOE_ASSIGN_OR_RETURN(const auto writer,
                       weights::SegmentWriter::CreateInMemory(result.memory.data(), result.memory.size(), 1,
                                                              kNoFingerprint, spec, plan));
  const WeightPattern codes(DType::kF8E4M3);
  for (size_t i = 0; i < plan.size(); ++i) {
    const weights::TensorEntry& entry = writer->directory()[i];
    if (plan[i].dtype == DType::kF32) {
      FillFloats(plan[i], reinterpret_cast<float*>(writer->data(i)));
    } else if (plan[i].dtype == DType::kBF16) {
      const bool embedding = plan[i].name == model::kEmbeddingName;
      WeightPattern(DType::kBF16, embedding ? 1 : UnitDeviation(plan[i])).Fill(pool, writer->data(i), entry.data_bytes);
    } else {
      codes.Fill(pool, writer->data(i), entry.data_bytes);
      std::ranges::copy(MakeScales(plan[i].rows, plan[i].cols, UnitDeviation(plan[i])), writer->scales(i));
      pool.Run(PaddedRows(plan[i].rows) / kRowGroup, [&](int64_t group, int) {
        const uint8_t* packed = writer->data(i) + group * PackedBytes(DType::kF8E4M3, kRowGroup, plan[i].cols);
        FindExceptions(packed, plan[i].cols, writer->exceptions(i) + ExceptionWords(group * kRowGroup, plan[i].cols));
      });
    }
  }
  pool.Run(static_cast<int64_t>(plan.size()), [&](int64_t i, int) {
    writer->SetChecksum(i, weights::TensorChecksum(writer->directory()[i], result.memory.data()));
  });
  MOE_RETURN_IF_ERROR(writer->Finish());
  MOE_ASSIGN_OR_RETURN(result.segment, weights::WeightSegment::FromMemory(result.memory.data(), result.memory.size()));
  return result;
}

absl::StatusOr<weights::ModelSpec> FitExperts(const weights::ModelSpec& spec, int64_t bytes) {
  weights::ModelSpec fitted = spec;
  for (;; fitted.num_experts -= spec.num_expert_groups) {
    const int64_t reachable = fitted.num_experts / spec.num_expert_groups * spec.experts_topk_groups;
    if (fitted.num_experts <= 0 || reachable < spec.experts_per_token) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s do not hold a model with %d experts per token; raise --memory", HumanBytes(bytes),
                          spec.experts_per_token));
    }
    MOE_ASSIGN_OR_RETURN(const std::vector<weights::TensorPlan> plan, checkpoint::PlanShapes(fitted, /*fp8=*/true));
    if (weights::SegmentWriter::RequiredBytes(plan) <= bytes) return fitted;
  }
}

}  // namespace moestro::bench
