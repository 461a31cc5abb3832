#include "services/cli/paper/moe_lightning/pipeline.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/device/sim/world.h"
#include "common/roofline/intensity.h"
#include "common/roofline/work_count.h"

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

  LayerSeconds Run(Schedule schedule) {
    LayerSeconds before;
    for (int64_t layer = 0; layer < kFirst + kCounted; ++layer) {
      if (layer == kFirst) before = Now();
      RunLayer(schedule, layer);
    }
    const LayerSeconds after = Now();
    const auto mean = [](double from, double to) { return (to - from) / static_cast<double>(kCounted); };
    return {mean(before.layer, after.layer), mean(before.device, after.device), mean(before.host, after.host),
            mean(before.to_device, after.to_device)};
  }

 private:
  roofline::Work Products(const roofline::WeightCount& weights) const {
    return {.operations = 2 * rows_ * weights.elements, .bytes = weights.bytes};
  }

  double Take(size_t resource, double begin, double seconds) {
    const World::Turn turn[] = {{resource, seconds}};
    const double end = world_.Take(begin, turn);
    latest_ = std::max(latest_, end);
    return end;
  }
  LayerSeconds Now() const {
    return {end_, world_.BusySeconds(device_), world_.BusySeconds(host_), world_.BusySeconds(to_device_)};
  }

  void RunLayer(Schedule schedule, int64_t layer) {
    switch (schedule) {
      case Schedule::kCgoPipe:
        return CgoPipe(layer);
      case Schedule::kFlexGenCpu:
      case Schedule::kFlexGen:
        return FlexGen(schedule == Schedule::kFlexGen);
      case Schedule::kWholeLayer:
        return WholeLayer();
    }
  }

  // Algorithm 1. What is asked for in layer i are its experts, and attention of two micro-batches later.
  void CgoPipe(int64_t layer) {
    const int64_t ahead = std::min<int64_t>(2, micro_batches_);
    if (layer == 0) {
      done_.assign(static_cast<size_t>(micro_batches_), 0);
      attended_.assign(static_cast<size_t>(micro_batches_), 0);
      for (int64_t i = 0; i < ahead; ++i) Attend(i);
    }
    const double loaded = weights_loaded_;
    for (int64_t i = 0; i < micro_batches_; ++i) {
      const double hidden = Take(to_device_, attended_[static_cast<size_t>(i)], hidden_);
      // A page overwrites what the layer before the last one left.
      weights_loaded_ = Take(to_device_, layer_begun_, weights_ / static_cast<double>(micro_batches_));
      const double begin = std::max({hidden, loaded, done_[static_cast<size_t>(i)]});
      done_[static_cast<size_t>(i)] = end_ = Take(device_, begin, experts_);
      Attend((i + ahead) % micro_batches_);
    }
    layer_begun_ = end_;
  }
  void Attend(int64_t i) {
    const auto at = static_cast<size_t>(i);
    const double projected = Take(device_, done_[at], projections_);
    attended_[at] = Take(host_, Take(to_host_, projected, offload_), host_attention_);
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
  // CGOPipe.
  double weights_loaded_ = 0;     // of the next layer
  double layer_begun_ = 0;        // when the layer before was done, whose weights are overwritten
  std::vector<double> done_;      // by micro-batch: its experts in the layer before, or in this one
  std::vector<double> attended_;  // its attention in this layer, or in the next one
};

}  // namespace

LayerSeconds SimulateLayer(const roofline::Machine& machine, const weights::ModelSpec& spec,
                           const roofline::BatchWorkload& workload, const roofline::BatchPolicy& policy,
                           Schedule schedule) {
  return Pipeline(machine, spec, workload, policy).Run(schedule);
}

}  // namespace moestro::cli
