// How far logits may deviate from exact arithmetic, derived from the engine's roundings.
//
// Weights are exact and sums are F32, so only the rounding of activations to BF16 is visible. One rounding has a
// relative error of at most 2^-8 and, over the mantissas, a root mean square close to 2^-9. The errors of a vector's
// elements are independent, so W x inherits the relative size: |W dx| / |W x| = 2^-9. Errors of successive roundings
// add in quadrature, and the residual connections neither amplify nor damp them: a perturbation passes through a
// normalised branch with a gain near 1 and is added to a stream that grows likewise. With n roundings in sequence, the
// logits of a position are off by 2^-9 sqrt(n) of their own root mean square.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "common/weights/model_spec.h"

namespace moestro::model {

// The longest chain of one layer, which is that of the absorbed form: input of q_a and kv_a; input of q_b; cached
// latent; cached rotated key; q_nope; absorbed query; softmax weights; sum of latents; input of o; input of gate and
// up; input of down.
inline constexpr int kRoundingsPerLayer = 11;

// Root mean square of the logits' deviation, relative to that of the logits.
inline double RelativeDeviation(const weights::ModelSpec& spec) {
  const double roundings = static_cast<double>(kRoundingsPerLayer * spec.num_layers + 1);  // and the head's input
  return std::sqrt(roundings) / 512;
}

// W8A8: rounding moves an input of a linear layer to another code, at worst independently of the reference's. A step is
// 1/127 of a token's largest input, which is up to 4 deviations of the inputs; two roundings differ by its 6th part,
// squared. In a layer of grouped queries the chain has 4: inputs of q, k and v, of o, of gate and up, of down.
inline double Int8Deviation(const weights::ModelSpec& spec) {
  return 4.0 / 127 * std::sqrt(4 * static_cast<double>(spec.num_layers) / 6);
}

// Inputs in FP8: as above, rounding moves an input to another code, at worst independently of the reference's. E4M3
// keeps 3 bits of a mantissa, so a rounding is off by 2^-5 (root mean square), and two differ by sqrt(2) times that. A
// layer of un-absorbed MLA has a chain of 6: inputs of q_a and kv_a, of q_b, of kv_b, of o, of gate and up, of down.
inline double Fp8Deviation(const weights::ModelSpec& spec) {
  return std::sqrt(2 * 6 * static_cast<double>(spec.num_layers)) / 32;
}

// A Gaussian error stays below 6 deviations in all of 10^8 logits; the tests check fewer.
inline constexpr double kSigmas = 6;

inline double RootMeanSquare(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Largest |actual - expected| of one position, as a fraction of the tolerance. Compares only expected.size() logits.
inline double ToleranceRatio(const weights::ModelSpec& spec, std::span<const float> actual,
                             std::span<const double> expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(actual[i] - expected[i]));
  return worst / (kSigmas * RelativeDeviation(spec) * RootMeanSquare(expected));
}

}  // namespace moestro::model
