// What a layer's parts take on the levels of a machine, at full rates: the routed experts that a schedule places, and
// what is computed beside them. The longer of reading the weights once and of multiplying.
#pragma once

#include <cstdint>

#include "common/experts/expert_costs.h"
#include "common/roofline/roofline.h"
#include "common/weights/model_spec.h"

namespace moestro::cli {

class LayerSeconds {
 public:
  // Of the model's last layer. bytes_a_weight: of linear layers, scales included. The machine must outlive it.
  LayerSeconds(const roofline::Machine& machine, const weights::ModelSpec& spec, double bytes_a_weight);

  double Expert(const roofline::Level& level, double rows) const { return Seconds(level, expert_weights_, rows); }
  // Attention's projections and the shared expert.
  double Rest(const roofline::Level& level, double rows) const { return Seconds(level, rest_weights_, rows); }
  double Load() const { return expert_weights_ * bytes_a_weight_ / machine_.link_bytes_per_second; }
  // Of passes of so many rows, with the rest on the device.
  experts::ExpertCosts Costs(int64_t rows) const;

  double expert_weights() const { return expert_weights_; }

 private:
  double Seconds(const roofline::Level& level, double weights, double rows) const;

  const roofline::Machine& machine_;
  const double bytes_a_weight_;
  double expert_weights_ = 0;
  double rest_weights_ = 0;
};

}  // namespace moestro::cli
