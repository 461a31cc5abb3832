#include "services/decode/overlap/near_experts.h"

#include "services/decode/overlap/device_experts.h"

namespace moestro::decode {

NearExperts::NearExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                         const Options& options)
    : options_(options), expert_bytes_(DeviceExpertBytes(spec, weights)) {
  for (int64_t i = 0; i < options.units; ++i) {
    units_.push_back(std::make_unique<Unit>(spec, weights, kernels, options.max_rows));
    runs_.emplace_back([this, unit = units_.back().get()] { Compute(*unit); });
  }
}

void NearExperts::Start(int64_t layer, std::span<const Work> work, const uint16_t* x) {
  layer_ = layer;
  x_ = x;
  for (size_t i = 0; i < units_.size(); ++i) {
    units_[i]->work = work[i];
    if (!work[i].plan->experts.empty()) units_[i]->thread.Start(runs_[i]);
  }
}

void NearExperts::Wait() {
  for (const auto& unit : units_) unit->thread.Wait();
}

void NearExperts::Compute(Unit& unit) {
  const double begin = device::SteadyClock().Now();
  unit.experts.RunOutputs(layer_, *unit.work.plan, x_, unit.work.outputs);
  if (options_.bytes_per_second == 0) return;
  const auto bytes = static_cast<double>(std::ssize(unit.work.plan->experts) * expert_bytes_);
  unit.pacer.SleepFrom(begin, bytes / options_.bytes_per_second);
}

}  // namespace moestro::decode
