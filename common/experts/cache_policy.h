// Replacement policies: which experts of a layer to keep in a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace moestro::experts {

// An expert that a pass uses in a layer, for any number of rows.
struct ExpertUse {
  int32_t expert = 0;
  int32_t rows = 0;
  float weight = 0;   // sum of the rows' weights
  int64_t slot = -1;  // where it is held; -1: it is not

  bool held() const { return slot >= 0; }
};

class CachePolicy {  // one layer's; not thread-safe
 public:
  virtual ~CachePolicy() = default;
  // The experts of the next pass, in ascending id.
  virtual void Use(std::span<const ExpertUse> uses) = 0;
  // The expert to evict, from `held`: experts that are cached and unused by this pass, at least one.
  virtual int32_t Victim(std::span<const int32_t> held) const = 0;
};

// Least recently used; among experts of the same pass, the lowest id.
class LruPolicy final : public CachePolicy {
 public:
  explicit LruPolicy(int64_t num_experts) : last_pass_(static_cast<size_t>(num_experts), 0) {}
  void Use(std::span<const ExpertUse> uses) override;
  int32_t Victim(std::span<const int32_t> held) const override;

 private:
  int64_t pass_ = 0;
  std::vector<int64_t> last_pass_;  // the expert's last pass; 0: none
};

}  // namespace moestro::experts
