#include "common/roofline/measure_layers.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/scratch_pages.h"
#include "common/roofline/work_count.h"

namespace moestro::roofline {
namespace {

constexpr int64_t kRepeats = 2;  // layers of a kind
constexpr char kEnough[] = "enough layers";

class Measurement {
 public:
  Measurement(const weights::ModelSpec& spec, ForwardFn forward, absl::FunctionRef<double()> now)
      : spec_(spec), forward_(forward), now_(now) {
    for (int64_t l = 0; l < spec.num_layers; ++l) window_ = std::min(window_, spec.WindowOf(l));
  }

  // Of the layers that count: those without one, if there are such.
  int64_t window() const { return window_; }

  // The shortest layers of each kind. Without a layer of one kind, that of the other.
  absl::StatusOr<LayerTimes::Sample> Run(model::MlaForm form, int64_t before, int64_t rows) {
    before -= before % kv::kPageTokens;
    const model::ScratchPages scratch(spec_, before, rows);
    const kv::KvPages pages[] = {scratch.pages()};
    std::vector<model::EngineRow> batch;
    for (int64_t i = 0; i < rows; ++i) {
      batch.push_back(
          {.token = static_cast<int32_t>(i % spec_.token_count), .position = static_cast<int32_t>(before + i)});
    }
    std::vector<double> begins;
    const auto interrupted = [&]() -> absl::Status {
      begins.push_back(now_());
      return HasEnough(std::ssize(begins) - 1) ? absl::CancelledError(kEnough) : absl::OkStatus();
    };
    const absl::Status status = forward_({batch, pages, form}, interrupted);
    if (!status.ok() && !(absl::IsCancelled(status) && HasEnough(std::ssize(begins) - 1))) return status;
    if (status.ok()) begins.push_back(now_());
    LayerTimes::Sample sample{.rows = rows};
    for (size_t l = 0; l + 1 < begins.size(); ++l) {
      if (spec_.WindowOf(static_cast<int64_t>(l)) != window_) continue;
      double& shortest = spec_.IsMoeLayer(static_cast<int64_t>(l)) ? sample.moe : sample.dense;
      const double seconds = begins[l + 1] - begins[l];
      if (shortest == 0 || seconds < shortest) shortest = seconds;
    }
    if (sample.moe == 0) sample.moe = sample.dense;
    if (sample.dense == 0) sample.dense = sample.moe;
    return sample;
  }

 private:
  // Of the layers below `layers`.
  bool HasEnough(int64_t layers) const {
    const bool has_experts = spec_.num_moe_layers() > 0;
    int64_t counted = 0;
    for (int64_t l = 0; l < layers; ++l) {
      counted += spec_.WindowOf(l) == window_ && spec_.IsMoeLayer(l) == has_experts ? 1 : 0;
    }
    return counted >= kRepeats;
  }

  const weights::ModelSpec& spec_;
  int64_t window_ = spec_.WindowOf(0);
  ForwardFn forward_;
  absl::FunctionRef<double()> now_;
};

// Of an average layer, with all experts that so many rows meet at most.
double LayerBytes(const weights::ModelSpec& spec, const ModelCount& count, int64_t rows) {
  const auto layers = static_cast<double>(spec.num_layers);
  return (PrefillBytes(spec, count, rows) - count.head.bytes) / layers;
}

}  // namespace

std::vector<int64_t> RowsToMeasure(int64_t most) {
  std::vector<int64_t> rows;
  for (const int64_t few : {1, 8, 24, 64}) {
    if (few < most) rows.push_back(few);
  }
  rows.push_back(most);
  return rows;
}

absl::StatusOr<LayerTimes> MeasureLayers(const weights::ModelSpec& spec, const MeasureOptions& options,
                                         ForwardFn forward, absl::FunctionRef<double()> now) {
  MOE_CHECK(!options.rows.empty() && !options.forms.empty());
  Measurement measurement(spec, forward, now);
  LayerTimes times{.form = options.forms.front()};
  const double begin = now();
  // Once more than it counts: the first pass wakes the workers and touches the buffers.
  MOE_RETURN_IF_ERROR(measurement.Run(times.form, 0, options.rows.front()).status());
  for (const int64_t rows : options.rows) {
    if (times.samples.size() >= 2 && now() - begin > options.budget_seconds) break;
    MOE_ASSIGN_OR_RETURN(const LayerTimes::Sample sample, measurement.Run(times.form, 0, rows));
    times.samples.push_back(sample);
  }
  const LayerTimes::Sample &few = times.samples.front(), &many = times.samples.back();
  const ModelCount count = CountModel(spec, DType::kF8E4M3);
  const auto layers = static_cast<double>(spec.num_layers);
  const double few_seconds = (static_cast<double>(spec.num_moe_layers()) * few.moe +
                              static_cast<double>(spec.num_layers - spec.num_moe_layers()) * few.dense) /
                             layers;
  times.head = few_seconds * count.head.bytes / LayerBytes(spec, count, few.rows);
  // Without a measurement of its own, attention costs what products do.
  const double operations = (PrefillOperations(spec, times.form, many.rows) - 2 * count.head.elements) / layers;
  times.attention_seconds.fill(many.moe / operations);
  const int64_t before = std::min(options.before, spec.max_position_embeddings - many.rows);
  for (const model::MlaForm form : options.forms) {
    if (before < kv::kPageTokens || now() - begin > options.budget_seconds) break;
    MOE_ASSIGN_OR_RETURN(const LayerTimes::Sample after, measurement.Run(form, before, many.rows));
    const auto rows = static_cast<double>(many.rows), earlier = static_cast<double>(before - before % kv::kPageTokens);
    const double more = AttentionOperations(spec, form, measurement.window(), earlier, rows) -
                        AttentionOperations(spec, times.form, measurement.window(), 0, rows);
    if (more > 0) times.attention(form) = std::max(0.0, after.moe - many.moe) / more;
  }
  if (options.forms.size() == 1) times.attention_seconds.fill(times.attention(options.forms.front()));
  return times;
}

}  // namespace moestro::roofline
