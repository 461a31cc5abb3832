// Which experts of a layer are worth keeping: one implementation for every idea of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace moestro {

// An expert that a pass takes in a layer, however many rows do.
struct ExpertUse {
  int32_t expert = 0;
  int32_t rows = 0;
  float weight = 0;  // sum of the rows' weights
};

class CachePolicy {  // of one layer; not thread-safe
 public:
  virtual ~CachePolicy() = default;
  // The experts of the next pass, in ascending id.
  virtual void Use(std::span<const ExpertUse> uses) = 0;
  // Which of these should make room for another one. They are held, not used by this pass, and at least one.
  virtual int32_t Victim(std::span<const int32_t> held) const = 0;
};

// Least recently used; among those of the same pass the one with the lowest id.
class LruPolicy final : public CachePolicy {
 public:
  explicit LruPolicy(int64_t num_experts) : last_pass_(static_cast<size_t>(num_experts), 0) {}
  void Use(std::span<const ExpertUse> uses) override;
  int32_t Victim(std::span<const int32_t> held) const override;

 private:
  int64_t pass_ = 0;
  std::vector<int64_t> last_pass_;  // in which an expert was used; 0: in none
};

}  // namespace moestro
