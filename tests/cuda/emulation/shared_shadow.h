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
  uint32_t proxy_fences = 0;  // of the thread so far
};

class SharedShadow {
 public:
  SharedShadow() : bytes_(kMaxSharedBytes) {}

  // The fault of the access, or nothing. begin_of_block: the block's first Moment::block; older writes do not count.
  std::string Check(int64_t begin, int64_t end, Access access, const Accessor& by, uint32_t begin_of_block);

  // The same of a read by wgmma. proxy_fences: of each thread so far; the writer's must have been fenced since.
  std::string CheckProduct(int64_t begin, int64_t end, const Accessor& by, uint32_t begin_of_block,
                           const std::vector<uint32_t>& proxy_fences);

  void SetInFlight(int64_t begin, int64_t end, bool in_flight);
  // Products that read the bytes begin (1) or are done (-1).
  void AddProducts(int64_t begin, int64_t end, int products);

  // Whether nothing orders thread `other`'s access at `then` before the current one.
  static bool Unordered(int other, Moment then, const Accessor& by);

 private:
  enum class Readers : uint8_t { kOne, kOneWarp, kSeveralWarps };
  struct Byte {
    Moment written, read;
    int16_t writer = 0, reader = 0;
    Readers readers = Readers::kOne;
    bool atomic = false;     // whether the last write was atomic
    bool in_flight = false;  // in flight by cp.async
    int16_t products = 0;    // of wgmma, that may be reading it
    uint32_t fences = 0;     // of its writer, when it was written
  };

  void NoteRead(Byte& byte, const Accessor& by);

  std::vector<Byte> bytes_;
};

}  // namespace moestro::emulation
