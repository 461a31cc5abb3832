// Rotary position embedding with the context extensions of YaRN and Llama 3. Rotates the pairs of the checkpoint's
// layout: adjacent elements (DeepSeek) or those of the two halves (Qwen). Angles are computed in double and rounded
// once, so they are exact at any position.
#pragma once

#include <cstdint>
#include <vector>

#include "common/weights/model_spec.h"

namespace moestro::model {

// Radians per position of each of the rotated_dims() / 2 pairs. With YaRN, pairs with more than beta_fast rotations
// within the original context keep their frequency. Pairs with fewer than beta_slow rotations are divided by the
// factor; pairs in between are blended. Both bounds are pairs, unless
// yarn_between_pairs.
// Llama 3's rule differs in the blend only, which is by rotations instead of by pairs.
std::vector<double> RopeFrequencies(const weights::ModelSpec& spec);

// The factor on cos and sin: 1 unless YaRN's attention_factor or its mscale fields set another.
double RopeAmplitude(const weights::ModelSpec& spec);

// The factor on attention scores: qk_head_dim^-1/2, times the square of YaRN's mscale_all_dim gain.
double SoftmaxScale(const weights::ModelSpec& spec);

// Computes the rotations of the pairs at a position. Immutable, thread-safe.
class Rope {
 public:
  explicit Rope(const weights::ModelSpec& spec)
      : frequencies_(RopeFrequencies(spec)), amplitude_(RopeAmplitude(spec)) {}

  int64_t pairs() const { return static_cast<int64_t>(frequencies_.size()); }
  // Writes `pairs()` elements each.
  void Angles(int64_t position, float* cosine, float* sine) const;

 private:
  std::vector<double> frequencies_;
  double amplitude_;
};

// In place: x[2i], x[2i + 1] for i in [0, pairs).
void RotatePairs(const float* cosine, const float* sine, int64_t pairs, float* x);
// In place: x[i], x[pairs + i] for i in [0, pairs).
void RotateHalves(const float* cosine, const float* sine, int64_t pairs, float* x);

}  // namespace moestro::model
