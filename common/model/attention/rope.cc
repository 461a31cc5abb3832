#include "common/model/attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moestro::model {
namespace {

bool HasYarn(const weights::ModelSpec& spec) { return spec.yarn.enabled != 0; }

// Gain of the attention scores when the context is extended by `factor`.
double YarnGain(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// The (fractional) index of the pair with `rotations` rotations within the original context.
double PairOfRotations(const weights::ModelSpec& spec, double rotations) {
  const auto context = static_cast<double>(spec.yarn.original_max_position_embeddings);
  return static_cast<double>(spec.rotated_dims()) * std::log(context / (2 * std::numbers::pi * rotations)) /
         (2 * std::log(spec.rope_theta));
}

// Pairs with more than beta_fast rotations within the original context keep their frequency. Pairs with fewer than
// beta_slow are divided by the factor; in between the frequency is blended by the number of rotations.
void ScaleAsLlama3(const weights::YarnSpec& scaling, std::vector<double>& frequencies) {
  const auto context = static_cast<double>(scaling.original_max_position_embeddings);
  for (double& frequency : frequencies) {
    const double rotations = context * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((rotations - scaling.beta_slow) / (scaling.beta_fast - scaling.beta_slow), 0.0, 1.0);
    frequency = frequency * kept + frequency / scaling.factor * (1 - kept);
  }
}

}  // namespace

std::vector<double> RopeFrequencies(const weights::ModelSpec& spec) {
  const auto dims = static_cast<double>(spec.rotated_dims());
  std::vector<double> frequencies(spec.rotated_dims() / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(spec.rope_theta, -2.0 * static_cast<double>(i) / dims);
  }
  if (spec.llama3_rope != 0) ScaleAsLlama3(spec.yarn, frequencies);
  if (!HasYarn(spec)) return frequencies;

  // The upper bound is clamped to the number of dimensions, not of pairs: models were trained with this.
  const bool between = spec.yarn_between_pairs != 0;
  const double first = PairOfRotations(spec, spec.yarn.beta_fast), last = PairOfRotations(spec, spec.yarn.beta_slow);
  const double low = std::max(between ? first : std::floor(first), 0.0);
  double high = std::min(between ? last : std::ceil(last), dims - 1);
  if (low == high) high += 0.001;  // a ramp of one step instead of a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double blend = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1 - blend) + frequencies[i] / spec.yarn.factor * blend;
  }
  return frequencies;
}

double RopeAmplitude(const weights::ModelSpec& spec) {
  const weights::YarnSpec& yarn = spec.yarn;
  if (!HasYarn(spec)) return 1;
  if (yarn.attention_factor != 0) return yarn.attention_factor;
  if (yarn.mscale != 0 && yarn.mscale_all_dim != 0) {
    return YarnGain(yarn.factor, yarn.mscale) / YarnGain(yarn.factor, yarn.mscale_all_dim);
  }
  return YarnGain(yarn.factor, 1);
}

double SoftmaxScale(const weights::ModelSpec& spec) {
  const double scale = 1 / std::sqrt(static_cast<double>(spec.qk_head_dim()));
  if (!HasYarn(spec) || spec.yarn.mscale_all_dim == 0) return scale;
  const double gain = YarnGain(spec.yarn.factor, spec.yarn.mscale_all_dim);
  return scale * gain * gain;
}

void Rope::Angles(int64_t position, float* cosine, float* sine) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cosine[i] = static_cast<float>(std::cos(angle) * amplitude_);
    sine[i] = static_cast<float>(std::sin(angle) * amplitude_);
  }
}

namespace {

void Rotate(float cosine, float sine, float* x, float* y) {
  const float a = *x;
  const float b = *y;
  *x = a * cosine - b * sine;
  *y = a * sine + b * cosine;
}

}  // namespace

void RotatePairs(const float* cosine, const float* sine, int64_t pairs, float* x) {
  for (int64_t i = 0; i < pairs; ++i) Rotate(cosine[i], sine[i], x + 2 * i, x + 2 * i + 1);
}

void RotateHalves(const float* cosine, const float* sine, int64_t pairs, float* x) {
  for (int64_t i = 0; i < pairs; ++i) Rotate(cosine[i], sine[i], x + i, x + pairs + i);
}

}  // namespace moestro::model
