// Counts bank conflicts of shared memory between two points at which all lanes of a warp were together. The n-th
// accesses of different lanes from the same instruction are taken as one access of the warp. 32 banks of 4 bytes;
// accesses of 16 bytes are served 8 lanes at a time, of 8 bytes 16 lanes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace moestro::emulation {

struct BankUse {
  int64_t accesses = 0;   // by whole warps
  int64_t conflicts = 0;  // passes beyond the minimum for the bytes
};

class BankLog {
 public:
  explicit BankLog(int warps) : lanes_(static_cast<size_t>(warps) * 32) {}

  void Note(int thread, const void* instruction, int64_t offset, int64_t bytes);
  // All lanes of the warp are together.
  void Flush(int warp, BankUse& use);

 private:
  struct Lane {
    std::map<const void*, int> times;  // runs of an instruction since the last Flush
    std::vector<std::pair<std::pair<const void*, int>, std::pair<int64_t, int64_t>>> accesses;
  };
  std::vector<Lane> lanes_;
};

}  // namespace moestro::emulation
