#include "services/cli/paper/moe_lightning/pipeline.h"

#include <algorithm>

#include "common/device/sim/world.h"
#include "common/roofline/intensity.h"
#include "common/roofline/work_count.h"
#include "services/decode/throughput/simulate.h"

namespace moestro::cli {
namespace {

using device::World;

constexpr double kBf16Bytes = 2;
// The first layers fill the pipeline; from then on all layers take the same time.
constexpr int64_t kFirst = 3, kCounted = 4;

double Seconds(const roofline::Level& level, const roofline::Work& work) {
  return std::max(work.operations / level.flops_per_second, work.bytes / level.memory_bytes_per_second);
}

class Pipeline {
 public:
  Pipeline(const roofline::Machine& machine, const weights::ModelSpec& spec, const roofline::BatchWorkload& workload,
           const roofline::BatchPolicy& policy)
      : micro_batches_(policy.micro_batches), rows_(static_cast<double>(policy.micro_batch)) {
    const roofline::LayerCount layer = roofline::CountModel(spec, DType::kBF16).layers.back();
    const double context = workload.prompt + workload.generate / 2;
    const double link = machine.link_bytes_per_second;
    const roofline::Work attention = roofline::DecodeAttention(spec, rows_, context);
    device_attention_ = Seconds(machine.device, attention);
    host_attention_ = Seconds(machine.host, attention);
    projections_ = Seconds(machine.device, Products(layer.attention));
    experts_ = Seconds(machine.device, roofline::DecodeExperts(spec, layer.expert, rows_));
    const double entries = roofline::KvBytes(spec, rows_);
    const double outputs = rows_ * static_cast<double>(spec.num_heads * spec.v_head_dim) * kBf16Bytes;
    offload_ = (outputs + entries) / link;  // queries are as large as outputs
    hidden_ = outputs / link;
    cache_ = roofline::KvBytes(spec, rows_ * context) * (1 - policy.resident_cache) / link;
    entries_ = entries / link;
    weights_ = static_cast<double>(spec.num_experts) * layer.expert.bytes * (1 - policy.resident_weights) / link;
  }

  // CGOPipe is the list that decode runs (services/decode/throughput).
  PipelineSeconds Run(Schedule schedule) {
    if (schedule == Schedule::kCgoPipe) return Mean(ForecastOf(kFirst), ForecastOf(kFirst + kCounted));
    PipelineSeconds before;
    for (int64_t layer = 0; layer < kFirst + kCounted; ++layer) {
      if (layer == kFirst) before = Now();
      RunLayer(schedule);
    }
    return Mean(before, Now());
  }

 private:
  static PipelineSeconds Mean(const PipelineSeconds& before, const PipelineSeconds& after) {
    const auto mean = [](double from, double to) { return (to - from) / static_cast<double>(kCounted); };
    return {mean(before.layer, after.layer), mean(before.device, after.device), mean(before.host, after.host),
            mean(before.to_device, after.to_device)};
  }
  PipelineSeconds ForecastOf(int64_t layers) const {
    const decode::StepForecast forecast = decode::SimulateCgoPipe(layers, micro_batches_,
                                                                  {.pre_attention = projections_,
                                                                   .offload = offload_,
                                                                   .host_attention = host_attention_,
                                                                   .load_outputs = hidden_,
                                                                   .post_attention = experts_,
                                                                   .weights = weights_});
    const auto busy = [&](decode::Resource resource) { return forecast.busy[static_cast<size_t>(resource)]; };
    return {forecast.seconds, busy(decode::Resource::kDevice), busy(decode::Resource::kHost),
            busy(decode::Resource::kToDevice)};
  }

  roofline::Work Products(const roofline::WeightCount& weights) const {
    return {.operations = 2 * rows_ * weights.elements, .bytes = weights.bytes};
  }

  double Take(size_t resource, double begin, double seconds) {
    const World::Turn turn[] = {{resource, seconds}};
    const double end = world_.Take(begin, turn);
    latest_ = std::max(latest_, end);
    return end;
  }
  PipelineSeconds Now() const {
    return {end_, world_.BusySeconds(device_), world_.BusySeconds(host_), world_.BusySeconds(to_device_)};
  }

  void RunLayer(Schedule schedule) {
    if (schedule == Schedule::kWholeLayer) return WholeLayer();
    FlexGen(/*on_device=*/schedule == Schedule::kFlexGen);
  }

  void FlexGen(bool on_device) {
    for (int64_t i = 0; i < micro_batches_; ++i) {
      const double begin = end_;
      if (i == 0) Take(to_device_, begin, weights_);
      double ready = Take(device_, begin, projections_);
      if (on_device) {
        Take(to_device_, begin, cache_);
        Take(to_host_, ready, entries_);
        ready = Take(device_, ready, device_attention_);
      } else {
        ready = Take(to_device_, Take(host_, Take(to_host_, ready, offload_), host_attention_), hidden_);
      }
      Take(device_, ready, experts_);
      end_ = latest_;
    }
  }

  void WholeLayer() {
    double ready = Take(to_device_, end_, weights_);
    for (int64_t i = 0; i < micro_batches_; ++i) {
      ready = Take(device_, ready, projections_ + device_attention_ + experts_);
    }
    end_ = ready;
  }

  const int64_t micro_batches_;
  const double rows_;
  // Seconds of a micro-batch in a layer.
  double projections_ = 0;
  double device_attention_ = 0;
  double host_attention_ = 0;
  double experts_ = 0;
  double offload_ = 0;  // queries and cache entries to the host
  double hidden_ = 0;   // outputs of attention to the device
  double cache_ = 0;    // all its entries to the device
  double entries_ = 0;  // those of its tokens to the host
  double weights_ = 0;  // of a layer, that do not stay

  World world_;
  const size_t device_ = world_.Turns("device");
  const size_t host_ = world_.Turns("host");
  const size_t to_device_ = world_.Turns("to device");
  const size_t to_host_ = world_.Turns("to host");
  double latest_ = 0;  // end of all that was taken
  double end_ = 0;     // of the layer's experts so far
};

}  // namespace

PipelineSeconds SimulateLayer(const roofline::Machine& machine, const weights::ModelSpec& spec,
                              const roofline::BatchWorkload& workload, const roofline::BatchPolicy& policy,
                              Schedule schedule) {
  return Pipeline(machine, spec, workload, policy).Run(schedule);
}

}  // namespace moestro::cli
