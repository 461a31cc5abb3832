// The state of every byte of a block's shared memory: the last writer and readers, and when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/emulation/machine.h"

namespace moestro::emulation {

// The time of an access. Two threads' accesses are ordered if a barrier of the block is in between (their `block`
// differs) or, within one warp, a __syncwarp (their `warp` differs). Numbers only grow, across blocks and launches too.
struct Moment {
  uint32_t block = 0;
  uint32_t warp = 0;
};

struct Accessor {
  int thread = 0;  // index in the block
  Moment when;
  bool whole_warp = false;
};

class SharedShadow {
 public:
  SharedShadow() : bytes_(kMaxSharedBytes) {}

  // The fault of the access, or nothing. begin_of_block: the block's first Moment::block; older writes do not count.
  std::string Check(int64_t begin, int64_t end, Access access, const Accessor& by, uint32_t begin_of_block);

  void SetInFlight(int64_t begin, int64_t end, bool in_flight);

 private:
  enum class Readers : uint8_t { kOne, kOneWarp, kSeveralWarps };
  struct Byte {
    Moment written, read;
    int16_t writer = 0, reader = 0;
    Readers readers = Readers::kOne;
    bool atomic = false;     // whether the last write was atomic
    bool in_flight = false;  // in flight by cp.async
  };

  static bool Unordered(int other, Moment then, const Accessor& by);
  void NoteRead(Byte& byte, const Accessor& by);

  std::vector<Byte> bytes_;
};

}  // namespace moestro::emulation
