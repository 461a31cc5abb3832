#include "tests/cuda/emulation/bank_log.h"

#include <algorithm>
#include <array>
#include <set>

namespace moestro::emulation {
namespace {

constexpr int kLanes = 32;
constexpr int kBanks = 32;
constexpr int64_t kWord = 4;

struct LaneAccess {
  int lane;
  int64_t offset, bytes;
};

// Passes beyond the minimum for that many different words.
int64_t Conflicts(const std::vector<LaneAccess>& accesses) {
  const int64_t bytes = accesses.front().bytes;
  const int lanes_at_once = bytes == 16 ? 8 : bytes == 8 ? 16 : kLanes;
  int64_t conflicts = 0;
  for (int first = 0; first < kLanes; first += lanes_at_once) {
    std::set<int64_t> words;
    for (const LaneAccess& access : accesses) {
      if (access.lane < first || access.lane >= first + lanes_at_once) continue;
      for (int64_t word = access.offset / kWord; word * kWord < access.offset + access.bytes; ++word)
        words.insert(word);
    }
    if (words.empty()) continue;
    std::array<int64_t, kBanks> uses{};
    for (const int64_t word : words) ++uses[static_cast<size_t>(word % kBanks)];
    const auto needed = (static_cast<int64_t>(words.size()) + kBanks - 1) / kBanks;
    conflicts += *std::max_element(uses.begin(), uses.end()) - needed;
  }
  return conflicts;
}

}  // namespace

void BankLog::Note(int thread, const void* instruction, int64_t offset, int64_t bytes) {
  Lane& lane = lanes_[static_cast<size_t>(thread)];
  lane.accesses.push_back({{instruction, lane.times[instruction]++}, {offset, bytes}});
}

void BankLog::Flush(int warp, BankUse& use) {
  std::map<std::pair<const void*, int>, std::vector<LaneAccess>> together;
  for (int i = 0; i < kLanes; ++i) {
    Lane& lane = lanes_[static_cast<size_t>(warp * kLanes + i)];
    for (const auto& [which, where] : lane.accesses) together[which].push_back({i, where.first, where.second});
    lane.accesses.clear();
    lane.times.clear();
  }
  for (const auto& [which, accesses] : together) {
    ++use.accesses;
    use.conflicts += Conflicts(accesses);
  }
}

}  // namespace moestro::emulation
