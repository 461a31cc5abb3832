#include "common/experts/cache_policy.h"

#include <algorithm>
#include <utility>

#include "common/tensor/dtype.h"

namespace moestro::experts {
namespace {

// Weight of the last pass in the average score: 0.5 in HybriMoE's program.
constexpr float kScoreShare = 0.5f;

// Every expert has a number, and the one with the smallest goes.
template <typename Number>
class SmallestGoes : public CachePolicy {
 public:
  int32_t Victim(std::span<const int32_t> held) const override {
    return *std::ranges::min_element(
        held, {}, [this](int32_t expert) { return std::pair(numbers_[static_cast<size_t>(expert)], expert); });
  }

 protected:
  explicit SmallestGoes(int64_t num_experts) : numbers_(static_cast<size_t>(num_experts), Number{0}) {}
  Number& of(int32_t expert) { return numbers_[static_cast<size_t>(expert)]; }

  std::vector<Number> numbers_;
};

class LruPolicy final : public SmallestGoes<int64_t> {
 public:
  explicit LruPolicy(int64_t num_experts) : SmallestGoes(num_experts) {}
  void Use(std::span<const ExpertUse> uses, std::span<const model::ExpertChoice> /*others*/) override {
    ++pass_;
    for (const ExpertUse& use : uses) of(use.expert) = pass_;
  }

 private:
  int64_t pass_ = 0;
};

class LfuPolicy final : public SmallestGoes<int64_t> {
 public:
  explicit LfuPolicy(int64_t num_experts) : SmallestGoes(num_experts) {}
  void Use(std::span<const ExpertUse> uses, std::span<const model::ExpertChoice> /*others*/) override {
    for (const ExpertUse& use : uses) ++of(use.expert);
  }
};

// HybriMoE's "minus recent score", section IV-D, Eq. 3: a moving average of the scores, in which those that are not
// among a row's best count as 0. Those of several rows are added.
class MrsPolicy final : public SmallestGoes<float> {
 public:
  explicit MrsPolicy(int64_t num_experts) : SmallestGoes(num_experts) {}
  void Use(std::span<const ExpertUse> uses, std::span<const model::ExpertChoice> others) override {
    for (float& average : numbers_) average *= 1 - kScoreShare;
    for (const ExpertUse& use : uses) of(use.expert) += kScoreShare * use.weight;
    // Rounded as in a recording, so that its replay decides the same; weights of uses are so already.
    for (const model::ExpertChoice& other : others) {
      of(other.expert) += kScoreShare * FromBf16(ToBf16(other.weight));
    }
  }
};

}  // namespace

std::unique_ptr<CachePolicy> NewPolicy(Policy policy, int64_t num_experts) {
  switch (policy) {
    case Policy::kLfu:
      return std::make_unique<LfuPolicy>(num_experts);
    case Policy::kMrs:
      return std::make_unique<MrsPolicy>(num_experts);
    case Policy::kLru:
    case Policy::kFirstLayers:  // in a layer that holds all or none, nobody is evicted
      break;
  }
  return std::make_unique<LruPolicy>(num_experts);
}

}  // namespace moestro::experts
