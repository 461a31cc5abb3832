#include "common/roofline/pass_rows.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/roofline/work_count.h"

namespace moestro::roofline {
namespace {

constexpr int64_t kStep = 64;           // of the numbers of rows
constexpr double kMostReadShare = 0.1;  // reading, of the rows' own time

// What part of an average MoE layer's weights `rows` rows read.
double ReadShare(const weights::ModelSpec& spec, const ModelCount& count, double rows) {
  if (spec.num_moe_layers() == 0) return 1;
  double always = 0;
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    if (!spec.IsMoeLayer(l)) continue;
    const LayerCount& layer = count.layers[static_cast<size_t>(l)];
    always += layer.attention.bytes + layer.router.bytes + layer.dense.bytes;
  }
  always /= static_cast<double>(spec.num_moe_layers());
  const auto experts = static_cast<double>(spec.num_experts);
  const double met = 1 - std::pow(1 - static_cast<double>(spec.experts_per_token) / experts, rows);
  const double routed = experts * count.expert_bytes();
  return (always + met * routed) / (always + routed);
}

// Of a layer.
class LayerFit {
 public:
  LayerFit(const weights::ModelSpec& spec, const LayerTimes& times)
      : spec_(spec), times_(times), count_(CountModel(spec, DType::kF8E4M3)) {}

  PassTimes Of(bool moe) const {
    const auto& samples = times_.samples;
    const LayerTimes::Sample& high = samples.back();
    const double seconds = Seconds(high, moe), share = Share(high.rows, moe), rows = static_cast<double>(high.rows);
    if (samples.size() < 2) return {.read = 0, .row = seconds / rows};
    const LayerTimes::Sample& low = samples[samples.size() - 2];
    const double low_seconds = Seconds(low, moe), low_share = Share(low.rows, moe),
                 low_rows = static_cast<double>(low.rows);
    const double read = (low_seconds * rows - seconds * low_rows) / (low_share * rows - share * low_rows);
    const double most = seconds / share;  // all of it is reading
    const double clamped = std::clamp(read, 0.0, most);
    return {.read = clamped, .row = std::max(0.0, (seconds - clamped * share) / rows)};
  }
  double At(bool moe, int64_t rows) const {
    const PassTimes fit = Of(moe);
    return fit.read * Share(rows, moe) + fit.row * static_cast<double>(rows) + Attention(rows);
  }

 private:
  double Share(int64_t rows, bool moe) const { return moe ? ReadShare(spec_, count_, static_cast<double>(rows)) : 1; }
  double Attention(int64_t rows) const {
    return times_.attention(times_.form) *
           AttentionOperations(spec_, times_.form, /*window=*/0, 0, static_cast<double>(rows));
  }
  double Seconds(const LayerTimes::Sample& sample, bool moe) const {
    return std::max(0.0, (moe ? sample.moe : sample.dense) - Attention(sample.rows));
  }

  const weights::ModelSpec& spec_;
  const LayerTimes& times_;
  const ModelCount count_;
};

}  // namespace

PassTimes PassTimesOf(const weights::ModelSpec& spec, const LayerTimes& times) {
  MOE_CHECK(!times.samples.empty());
  const LayerFit fit(spec, times);
  const PassTimes moe = fit.Of(true), dense = fit.Of(false);
  const auto moe_layers = static_cast<double>(spec.num_moe_layers());
  const double dense_layers = static_cast<double>(spec.num_layers) - moe_layers;
  return {.read = moe_layers * moe.read + dense_layers * dense.read,
          .row = moe_layers * moe.row + dense_layers * dense.row};
}

int64_t PassRowsWithin(const weights::ModelSpec& spec, int threads) {
  int64_t rows = kMostPassRows;
  while (rows > kFewestPassRows && model::Engine::BufferBytes(spec, rows, threads) > kMostPassBytes) rows -= kStep;
  return rows;
}

int64_t ChoosePassRows(const PassTimes& times, int64_t most) {
  const int64_t highest = std::max(kFewestPassRows, std::min(most, kMostPassRows) / kStep * kStep);
  const double wanted = times.read / (kMostReadShare * times.row);  // infinite or no number without a row's time
  if (!(wanted < static_cast<double>(highest))) return times.read > 0 ? highest : kFewestPassRows;
  return std::max(kFewestPassRows, CeilDiv(static_cast<int64_t>(std::ceil(wanted)), kStep) * kStep);
}

LayerTimes WithRows(const weights::ModelSpec& spec, LayerTimes times, int64_t rows) {
  MOE_CHECK(!times.samples.empty());
  if (rows <= times.samples.back().rows) return times;
  const LayerFit fit(spec, times);
  const LayerTimes::Sample sample{.rows = rows, .dense = fit.At(false, rows), .moe = fit.At(true, rows)};
  times.samples.push_back(sample);
  return times;
}

}  // namespace moestro::roofline
