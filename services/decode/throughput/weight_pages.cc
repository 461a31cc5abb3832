#include "services/decode/throughput/weight_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace moestro::decode {
namespace {

// Pages begin at multiples of this.
constexpr int64_t kPageAlignment = 4096;

}  // namespace

WeightPages::WeightPages(std::vector<engine::Module> experts, int64_t resident)
    : experts_(std::move(experts)), resident_(resident) {
  std::vector<IndexRange> layers;
  for (int64_t i = 0; i < this->experts(); ++i) {
    if (i == 0 || experts_[static_cast<size_t>(i)].layer != experts_[static_cast<size_t>(i - 1)].layer) {
      layers.push_back({i, i});
    }
    ++layers.back().end;
  }
  for (size_t l = 0; l < layers.size(); ++l) {
    const int64_t stay = EvenPart(resident, static_cast<int64_t>(l), std::ssize(layers)).size();
    int64_t bytes = 0;
    for (int64_t i = layers[l].begin; i < layers[l].end; ++i) {
      const engine::Module& module = experts_[static_cast<size_t>(i)];
      const bool stays = i - layers[l].begin < stay;
      int64_t& end = stays ? resident_bytes_ : bytes;
      places_.push_back({&module, stays, end});
      end += module.image.bytes;
    }
    if (bytes == 0) continue;
    streamed_.push_back(experts_[static_cast<size_t>(layers[l].begin)].layer);
    layers_.push_back({layers[l].begin + stay, layers[l].end});
    bytes_.push_back(bytes);
    place_bytes_ = std::max(place_bytes_, bytes);
    streamed_bytes_ += bytes;
  }
}

absl::StatusOr<int64_t> WeightPages::MostResident(std::span<const engine::Module> experts, int64_t bytes) {
  std::vector<std::vector<int64_t>> layers;  // bytes of each layer's first experts: of none, one, two, ...
  for (size_t i = 0; i < experts.size(); ++i) {
    if (i == 0 || experts[i].layer != experts[i - 1].layer) layers.push_back({0});
    layers.back().push_back(layers.back().back() + experts[i].image.bytes);
  }
  const auto device_bytes = [&](int64_t resident) {
    int64_t stay = 0, place = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      const auto count = static_cast<size_t>(EvenPart(resident, static_cast<int64_t>(l), std::ssize(layers)).size());
      stay += layers[l][count];
      place = std::max(place, layers[l].back() - layers[l][count]);
    }
    return stay + 2 * place;
  };
  // Not by bisection: in a model of one or two layers fewer experts that stay may take more.
  int64_t resident = std::ssize(experts);
  while (resident > 0 && device_bytes(resident) > bytes) --resident;
  if (device_bytes(resident) <= bytes) return resident;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "routed experts of two layers need %d bytes of device memory, of which %d are left", device_bytes(0), bytes));
}

std::vector<engine::StagedRange> WeightPages::Page(int64_t layer, int64_t page, int64_t pages) const {
  const auto at = static_cast<size_t>(std::ranges::lower_bound(streamed_, layer) - streamed_.begin());
  const IndexRange units = EvenPart(CeilDiv(bytes_[at], kPageAlignment), page, pages);
  const int64_t begin = units.begin * kPageAlignment, end = std::min(units.end * kPageAlignment, bytes_[at]);
  std::vector<engine::StagedRange> ranges;
  for (int64_t i = layers_[at].begin; i < layers_[at].end; ++i) {
    const Expert& expert = places_[static_cast<size_t>(i)];
    for (const engine::StagedRange& range : expert.module->image.ranges) {
      const int64_t offset = expert.offset + range.offset;
      const int64_t first = std::max(begin, offset), last = std::min(end, offset + range.bytes);
      if (first < last) ranges.push_back({range.source + (first - offset), last - first, first});
    }
  }
  return ranges;
}

}  // namespace moestro::decode
