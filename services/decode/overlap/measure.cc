#include "services/decode/overlap/measure.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/base/status.h"
#include "common/model/scratch_pages.h"

namespace moestro::decode {
namespace {

constexpr int kRepeats = 4;

class Measurement {
 public:
  Measurement(HybridForward& forward, int64_t rows)
      : shared_(forward.shared()), lane_(forward.lane(0)), rows_(rows), scratch_(shared_.spec, 0, rows) {}

  absl::StatusOr<LayerTimes> Run() {
    const weights::ModelSpec& spec = shared_.spec;
    const kv::KvPages pages[] = {scratch_.pages()};
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < rows_; ++i) {
      rows.push_back({.token = static_cast<int32_t>(i % spec.token_count), .position = i});
    }
    MOE_ASSIGN_OR_RETURN(const model::CheckedBatch batch,
                         model::CheckBatch(spec, rows_, {rows, pages, model::MlaForm::kAbsorbed}));
    MOE_ASSIGN_OR_RETURN(done_, shared_.device.NewEvent());
    shared_.compute.Begin(0, 0, batch);
    MOE_RETURN_IF_ERROR(shared_.compute.Embed(0, lane_.stream()));
    LayerTimes shortest;
    for (double* part : Parts(shortest)) *part = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      MOE_ASSIGN_OR_RETURN(LayerTimes times, Once(spec.MoeLayer(repeat % spec.num_moe_layers())));
      const auto now = Parts(times);
      const auto best = Parts(shortest);
      for (size_t i = 0; i < now.size(); ++i) *best[i] = std::min(*best[i], *now[i]);
    }
    return shortest;
  }

 private:
  static std::vector<double*> Parts(LayerTimes& times) {
    return {&times.attend, &times.shared, &times.experts, &times.transfer, &times.sync};
  }

  // Seconds that the stream takes for what `launch` puts on it, and the thread to hear of its end.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> launch) {
    MOE_RETURN_IF_ERROR(lane_.stream().Synchronize());
    const double begin = shared_.device.Now();
    MOE_RETURN_IF_ERROR(launch());
    MOE_RETURN_IF_ERROR(lane_.stream().Record(*done_));
    MOE_RETURN_IF_ERROR(done_->Wait());
    return shared_.device.Now() - begin;
  }

  absl::StatusOr<LayerTimes> Once(int64_t layer) {
    device::Stream& stream = lane_.stream();
    LayerTimes times;
    MOE_ASSIGN_OR_RETURN(times.sync, Time([] { return absl::OkStatus(); }));
    MOE_ASSIGN_OR_RETURN(times.attend, Time([&] { return shared_.compute.Attend(0, layer, stream); }));
    MOE_ASSIGN_OR_RETURN(times.shared, Time([&] { return shared_.compute.Shared(0, layer, stream); }));
    MOE_ASSIGN_OR_RETURN(times.transfer, Time([&] { return lane_.CopyToHost(rows_); }));
    const double begin = shared_.device.Now();
    MOE_RETURN_IF_ERROR(shared_.experts.Run(layer, rows_, lane_.host()));
    times.experts = shared_.device.Now() - begin;
    MOE_ASSIGN_OR_RETURN(const double back, Time([&] { return lane_.CopyToDevice(rows_); }));
    MOE_ASSIGN_OR_RETURN(const double combine, Time([&] { return shared_.compute.Combine(0, layer, stream); }));
    const auto without_sync = [&](double seconds) { return std::max(0.0, seconds - times.sync); };
    times.attend = without_sync(times.attend) + without_sync(combine);
    times.shared = without_sync(times.shared);
    times.transfer = without_sync(times.transfer) + without_sync(back);
    return times;
  }

  LaneShared& shared_;
  Lane& lane_;
  const int64_t rows_;
  const model::ScratchPages scratch_;
  std::unique_ptr<device::Event> done_;
};

}  // namespace

absl::StatusOr<CostModel> MeasureCosts(HybridForward& forward, int64_t most_rows) {
  const weights::ModelSpec& spec = forward.spec();
  // The device computes all layers of a model without experts: a second batch would have nothing to wait for.
  if (spec.num_moe_layers() == 0) return CostModel({{.rows = 1, .times = {}}}, 0);
  std::vector<CostModel::Point> points;
  for (int64_t rows = 1;; rows = std::min(2 * rows, most_rows)) {
    Measurement measurement(forward, rows);
    MOE_ASSIGN_OR_RETURN(const LayerTimes times, measurement.Run());
    points.push_back({rows, times});
    if (rows == most_rows) break;
  }
  return CostModel(std::move(points), spec.num_moe_layers(), forward.lane(0).hands_over());
}

}  // namespace moestro::decode
