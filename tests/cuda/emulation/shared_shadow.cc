#include "tests/cuda/emulation/shared_shadow.h"

#include <algorithm>

namespace moestro::emulation {

template <typename Note>
void SharedShadow::ForEach(int64_t begin, int64_t end, const Note& note) {
  for (int64_t i = begin; i < end;) {
    const int64_t word = i / kWord * kWord;
    Byte* const bytes = &bytes_[static_cast<size_t>(word)];
    uint8_t& is_split = is_split_[static_cast<size_t>(word / kWord)];
    const int64_t stop = std::min(end, word + kWord);
    const bool is_whole = stop - i == kWord;
    if (is_whole && is_split == 0) {
      if (!note(*bytes, i)) return;
      i = stop;
      continue;
    }
    if (is_split == 0) std::fill(bytes + 1, bytes + kWord, *bytes);
    is_split = 1;
    for (; i < stop; ++i) {
      if (!note(bytes[i - word], i)) return;
    }
    if (is_whole && std::equal(bytes + 1, bytes + kWord, bytes)) is_split = 0;
  }
}

bool SharedShadow::Unordered(int other, Moment then, const Accessor& by) {
  if (then.block != by.when.block) return false;
  if (other / kWarpLanes != by.thread / kWarpLanes) return true;
  return then.warp == by.when.warp && (other != by.thread || by.whole_warp);
}

void SharedShadow::NoteRead(Byte& byte, const Accessor& by) {
  const bool before = byte.read.block == by.when.block;
  const bool same_warp = byte.reader / kWarpLanes == by.thread / kWarpLanes;
  if (!before || (same_warp && byte.read.warp != by.when.warp && byte.readers != Readers::kSeveralWarps)) {
    byte.readers = by.whole_warp ? Readers::kOneWarp : Readers::kOne;
  } else if (!same_warp) {
    byte.readers = Readers::kSeveralWarps;
  } else if (byte.readers == Readers::kOne && (byte.reader != by.thread || by.whole_warp)) {
    byte.readers = Readers::kOneWarp;
  }
  byte.read = by.when;
  byte.reader = static_cast<int16_t>(by.thread);
}

std::string SharedShadow::Check(int64_t begin, int64_t end, Access access, const Accessor& by,
                                uint32_t begin_of_block) {
  std::string wrong;
  const auto fault = [&](const char* what, int64_t i, const std::string& why) {
    wrong = std::string(what) + " of shared memory, byte " + std::to_string(i) + ", " + why;
    return false;
  };
  ForEach(begin, end, [&](Byte& byte, int64_t i) {
    if (byte.in_flight) return fault("access", i, "while cp.async is filling it");
    if (access != Access::kRead && byte.products > 0) return fault("write", i, "which wgmma may be reading");
    const bool written = byte.written.block >= begin_of_block;
    if (access != Access::kWrite && !written) return fault("read", i, "which this block has not written");
    if (written && Unordered(byte.writer, byte.written, by) && !(access == Access::kAtomic && byte.atomic)) {
      return fault(access == Access::kRead ? "read" : "write", i,
                   "races with a write of thread " + std::to_string(byte.writer) + ": no barrier lies between");
    }
    if (access == Access::kRead) {
      NoteRead(byte, by);
      return true;
    }
    if (byte.read.block >= begin_of_block) {
      Accessor reader = by;
      reader.whole_warp = by.whole_warp || byte.readers != Readers::kOne;
      const bool others = byte.readers == Readers::kSeveralWarps && byte.read.block == by.when.block;
      if (others || Unordered(byte.reader, byte.read, reader)) {
        return fault("write", i,
                     "races with a read of thread " + std::to_string(byte.reader) + ": no barrier lies between");
      }
    }
    byte.written = by.when;
    byte.writer = static_cast<int16_t>(by.thread);
    byte.atomic = access == Access::kAtomic;
    byte.fences = by.proxy_fences;
    return true;
  });
  return wrong;
}

std::string SharedShadow::CheckProduct(int64_t begin, int64_t end, const Accessor& by, uint32_t begin_of_block,
                                       const std::vector<uint32_t>& proxy_fences) {
  std::string wrong = Check(begin, end, Access::kRead, by, begin_of_block);
  if (!wrong.empty()) return wrong;
  ForEach(begin, end, [&](const Byte& byte, int64_t i) {
    if (byte.fences != proxy_fences[static_cast<size_t>(byte.writer)]) return true;
    wrong = "wgmma reads shared memory, byte " + std::to_string(i) + ": thread " + std::to_string(byte.writer) +
            " has not called fence.proxy.async since it wrote it";
    return false;
  });
  return wrong;
}

void SharedShadow::SetInFlight(int64_t begin, int64_t end, bool in_flight) {
  ForEach(begin, end, [&](Byte& byte, int64_t) {
    byte.in_flight = in_flight;
    return true;
  });
}

void SharedShadow::AddProducts(int64_t begin, int64_t end, int products) {
  ForEach(begin, end, [&](Byte& byte, int64_t) {
    byte.products = static_cast<int16_t>(byte.products + products);
    return true;
  });
}

}  // namespace moestro::emulation
