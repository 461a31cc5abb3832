#include "tests/cuda/emulation/shared_shadow.h"

namespace moestro::emulation {

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
  for (int64_t i = begin; i < end; ++i) {
    Byte& byte = bytes_[static_cast<size_t>(i)];
    const auto at = [i] { return " of shared memory, byte " + std::to_string(i); };
    if (byte.in_flight) return "access" + at() + ", while cp.async is filling it";
    if (access != Access::kRead && byte.products > 0) return "write" + at() + ", which wgmma may be reading";
    const bool written = byte.written.block >= begin_of_block;
    if (access != Access::kWrite && !written) return "read" + at() + ", which this block has not written";
    if (written && Unordered(byte.writer, byte.written, by) && !(access == Access::kAtomic && byte.atomic)) {
      return std::string(access == Access::kRead ? "read" : "write") + at() + ", races with a write of thread " +
             std::to_string(byte.writer) + ": no barrier lies between";
    }
    if (access == Access::kRead) {
      NoteRead(byte, by);
      continue;
    }
    if (byte.read.block >= begin_of_block) {
      Accessor reader = by;
      reader.whole_warp = by.whole_warp || byte.readers != Readers::kOne;
      const bool others = byte.readers == Readers::kSeveralWarps && byte.read.block == by.when.block;
      if (others || Unordered(byte.reader, byte.read, reader)) {
        return "write" + at() + ", races with a read of thread " + std::to_string(byte.reader) +
               ": no barrier lies between";
      }
    }
    byte.written = by.when;
    byte.writer = static_cast<int16_t>(by.thread);
    byte.atomic = access == Access::kAtomic;
    byte.fences = by.proxy_fences;
  }
  return {};
}

std::string SharedShadow::CheckProduct(int64_t begin, int64_t end, const Accessor& by, uint32_t begin_of_block,
                                       const std::vector<uint32_t>& proxy_fences) {
  std::string wrong = Check(begin, end, Access::kRead, by, begin_of_block);
  for (int64_t i = begin; i < end && wrong.empty(); ++i) {
    const Byte& byte = bytes_[static_cast<size_t>(i)];
    if (byte.fences == proxy_fences[static_cast<size_t>(byte.writer)]) {
      wrong = "wgmma reads shared memory, byte " + std::to_string(i) + ": thread " + std::to_string(byte.writer) +
              " has not called fence.proxy.async since it wrote it";
    }
  }
  return wrong;
}

void SharedShadow::SetInFlight(int64_t begin, int64_t end, bool in_flight) {
  for (int64_t i = begin; i < end; ++i) bytes_[static_cast<size_t>(i)].in_flight = in_flight;
}

void SharedShadow::AddProducts(int64_t begin, int64_t end, int products) {
  for (int64_t i = begin; i < end; ++i) {
    Byte& byte = bytes_[static_cast<size_t>(i)];
    byte.products = static_cast<int16_t>(byte.products + products);
  }
}

}  // namespace moestro::emulation
