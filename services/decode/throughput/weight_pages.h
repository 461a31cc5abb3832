// Where the routed experts are that a device's memory does not hold together: some stay there, the others come layer by
// layer into one of two places, in pages ("MoE-Lightning", section 4.1 and appendix A.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/engine/weight_image.h"

namespace moestro::decode {

class WeightPages {
 public:
  // `experts`: all of a model, layer by layer, each layer's in ascending id. The first ones of each layer stay,
  // `resident` in all, equally many in every layer but for one.
  WeightPages(std::vector<engine::Module> experts, int64_t resident);
  // How many may stay in so much memory. RESOURCE_EXHAUSTED: not even two layers fit.
  static absl::StatusOr<int64_t> MostResident(std::span<const engine::Module> experts, int64_t bytes);

  WeightPages(const WeightPages&) = delete;  // places point into it
  WeightPages(WeightPages&&) = default;

  int64_t resident() const { return resident_; }
  int64_t experts() const { return std::ssize(experts_); }
  int64_t resident_bytes() const { return resident_bytes_; }
  // Of the largest layer's experts that come.
  int64_t place_bytes() const { return place_bytes_; }
  int64_t device_bytes() const { return resident_bytes_ + 2 * place_bytes_; }
  // Layers with experts that come, ascending.
  const std::vector<int64_t>& streamed() const { return streamed_; }
  // Of a step: all experts that come.
  int64_t streamed_bytes() const { return streamed_bytes_; }

  struct Expert {
    const engine::Module* module = nullptr;
    bool resident = false;
    int64_t offset = 0;  // in the memory of those that stay, or in the layer's place
  };
  const std::vector<Expert>& places() const { return places_; }

  // What the page brings, with offsets in the layer's place. Pages of a layer are equal parts of its bytes.
  std::vector<engine::StagedRange> Page(int64_t layer, int64_t page, int64_t pages) const;

 private:
  std::vector<engine::Module> experts_;
  std::vector<Expert> places_;
  std::vector<int64_t> streamed_;
  std::vector<IndexRange> layers_;  // of each streamed layer, its experts that come
  std::vector<int64_t> bytes_;      // of each streamed layer
  int64_t resident_ = 0;
  int64_t resident_bytes_ = 0;
  int64_t place_bytes_ = 0;
  int64_t streamed_bytes_ = 0;
};

}  // namespace moestro::decode
