// The state of every byte of a block's shared memory: the last writer and readers, and when. Most accesses are to whole
// words of 4 bytes, which then have one state.
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

  bool operator==(const Moment&) const = default;
};

struct Accessor {
  int thread = 0;  // index in the block
  Moment when;
  bool whole_warp = false;
  uint32_t proxy_fences = 0;  // of the thread so far
};

class SharedShadow {
 public:
  SharedShadow() : bytes_(kMaxSharedBytes), is_split_(kMaxSharedBytes / kWord) {}

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
  static constexpr int64_t kWord = 4;
  enum class Readers : uint8_t { kOne, kOneWarp, kSeveralWarps };
  struct Byte {
    Moment written, read;
    int16_t writer = 0, reader = 0;
    Readers readers = Readers::kOne;
    bool atomic = false;     // whether the last write was atomic
    bool in_flight = false;  // in flight by cp.async
    int16_t products = 0;    // of wgmma, that may be reading it
    uint32_t fences = 0;     // of its writer, when it was written

    bool operator==(const Byte&) const = default;
  };
  static_assert(kMaxSharedBytes % kWord == 0);

  static void NoteRead(Byte& byte, const Accessor& by);
  // note(byte, its offset), until false, for the bytes begin to end, or once for a word of them with one state.
  template <typename Note>
  void ForEach(int64_t begin, int64_t end, const Note& note);

  std::vector<Byte> bytes_;        // of a word with one state: its first
  std::vector<uint8_t> is_split_;  // by word: whether its bytes have a state each
};

}  // namespace moestro::emulation
