#include "tests/cuda/emulation/global_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace moestro::emulation {

GlobalMemory& GlobalMemory::Get() {
  static GlobalMemory memory;
  return memory;
}

template <typename Note>
void GlobalMemory::ForEach(Buffer& buffer, size_t begin, size_t end, bool writes, const Note& note) {
  for (size_t i = begin; i < end;) {
    const size_t first = i / kGranule * kGranule, stop = std::min(end, first + kGranule);
    Writer& granule = buffer.granules[first / kGranule];
    if (granule != kSplit && (!writes || stop - i == kGranule)) {
      if (!note(granule, i)) return;
      i = stop;
      continue;
    }
    Writer* const bytes = &buffer.by_byte[first];
    if (granule != kSplit) std::fill_n(bytes, kGranule, std::exchange(granule, kSplit));
    for (; i < stop; ++i) {
      if (!note(bytes[i - first], i)) return;
    }
    const bool is_last = stop == first + kGranule;  // most are written in order
    if (writes && is_last && std::equal(bytes + 1, bytes + kGranule, bytes)) granule = *bytes;
  }
}

void GlobalMemory::Add(const void* address, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const size_t granules = (static_cast<size_t>(bytes) + kGranule - 1) / kGranule;
  // Pages that nobody touches take no memory.
  auto* const by_byte = static_cast<Writer*>(std::calloc(std::max(granules, size_t{1}) * kGranule, sizeof(Writer)));
  MOE_CHECK(by_byte != nullptr);
  buffers_[begin] = {
      begin, bytes, false, true, false, std::vector<Writer>(granules), std::unique_ptr<Writer[], Free>(by_byte)};
}

void GlobalMemory::Remove(const void* address) {
  MOE_CHECK(buffers_.erase(reinterpret_cast<uintptr_t>(address)) == 1);
  latest_ = nullptr;
}

void GlobalMemory::AddHost(const void* address, int64_t bytes, bool writable, bool changes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  buffers_[begin] = {begin, bytes, true, writable, changes, {}, {}};
}

void GlobalMemory::RemoveHost(const void* address) {
  buffers_.erase(reinterpret_cast<uintptr_t>(address));
  latest_ = nullptr;
}

void GlobalMemory::Fill(const void* address, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto after = buffers_.upper_bound(begin);
  MOE_CHECK(after != buffers_.begin());
  Buffer& buffer = std::prev(after)->second;
  const uint64_t offset = begin - buffer.begin;
  MOE_CHECK(offset + static_cast<uint64_t>(bytes) <= static_cast<uint64_t>(buffer.bytes));
  ForEach(buffer, offset, offset + static_cast<uint64_t>(bytes), /*writes=*/true, [](Writer& writer, size_t) {
    writer = {.block = kHost};
    return true;
  });
}

std::string GlobalMemory::Outside(uintptr_t address, int64_t bytes, Access access) const {
  std::string text = std::string(access == Access::kRead ? "read" : "write") + " of " + std::to_string(bytes) +
                     " bytes outside of device memory";
  const auto after = buffers_.upper_bound(address);
  if (after == buffers_.begin()) return text;
  const Buffer& before = std::prev(after)->second;
  return text + ", " + std::to_string(static_cast<int64_t>(address - before.begin)) +
         " bytes from the beginning of a buffer of " + std::to_string(before.bytes) + " bytes";
}

bool GlobalMemory::Has(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto after = buffers_.upper_bound(at);
  return after != buffers_.begin() &&
         at - std::prev(after)->first < static_cast<uint64_t>(std::prev(after)->second.bytes);
}

std::string GlobalMemory::Check(const void* address, int64_t bytes, Access access, uint32_t block,
                                uint32_t first_block) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto inside = [&](const Buffer* b) {
    return b != nullptr && begin >= b->begin && begin + static_cast<uint64_t>(bytes) <= b->begin + b->bytes;
  };
  if (!inside(latest_)) {
    const auto after = buffers_.upper_bound(begin);
    latest_ = after == buffers_.begin() ? nullptr : &std::prev(after)->second;
    if (!inside(latest_)) return Outside(begin, bytes, access);
  }
  if (latest_->is_host) return access == Access::kRead || latest_->is_writable ? "" : Outside(begin, bytes, access);
  std::string wrong;
  const size_t first = begin - latest_->begin;
  ForEach(*latest_, first, first + static_cast<size_t>(bytes), access != Access::kRead, [&](Writer& writer, size_t i) {
    const auto fault = [&](const char* what) {
      wrong = std::string(what) + ", byte " + std::to_string(i) + " of a buffer of " + std::to_string(latest_->bytes) +
              " bytes";
      return false;
    };
    if (writer.block >= first_block && writer.block != block && !(writer.atomic != 0 && access == Access::kAtomic)) {
      return fault(access == Access::kRead
                       ? "read of global memory that another block of the same launch has written"
                       : "write of global memory that another block of the same launch has written");
    }
    if (access != Access::kWrite && writer.block == kNobody) {
      return fault("read of global memory that nobody has written");
    }
    if (access != Access::kRead) writer = {.block = block, .atomic = access == Access::kAtomic ? 1u : 0u};
    return true;
  });
  return wrong;
}

}  // namespace moestro::emulation
