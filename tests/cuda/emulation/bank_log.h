// Bank conflicts of shared memory, counted from what the lanes of a warp did between two points at which all of them
// were together: accesses of different lanes from the same instruction, each lane's n-th there, are taken for one
// access of the warp. 32 banks of 4 bytes; 16 bytes a lane are served 8 lanes at a time, 8 bytes 16 lanes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace moestro::emulation {

struct BankUse {
  int64_t accesses = 0;   // of whole warps
  int64_t conflicts = 0;  // passes more than the bytes alone would have taken
};

class BankLog {
 public:
  explicit BankLog(int warps) : lanes_(static_cast<size_t>(warps) * 32) {}

  void Note(int thread, const void* instruction, int64_t offset, int64_t bytes);
  // All lanes of the warp are together.
  void Flush(int warp, BankUse& use);

 private:
  struct Lane {
    std::map<const void*, int> times;  // that an instruction was run since the last Flush
    std::vector<std::pair<std::pair<const void*, int>, std::pair<int64_t, int64_t>>> accesses;
  };
  std::vector<Lane> lanes_;
};

}  // namespace moestro::emulation
