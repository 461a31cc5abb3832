#include "tests/cuda/emulation/global_memory.h"

#include <algorithm>

#include "common/base/check.h"

namespace moestro::emulation {

GlobalMemory& GlobalMemory::Get() {
  static GlobalMemory memory;
  return memory;
}

void GlobalMemory::Add(const void* address, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  buffers_[begin] = {begin,
                     bytes,
                     false,
                     true,
                     std::vector<uint32_t>(static_cast<size_t>(bytes)),
                     std::vector<uint8_t>(static_cast<size_t>(bytes))};
}

void GlobalMemory::Remove(const void* address) {
  MOE_CHECK(buffers_.erase(reinterpret_cast<uintptr_t>(address)) == 1);
  latest_ = nullptr;
}

void GlobalMemory::AddHost(const void* address, int64_t bytes, bool writable) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  buffers_[begin] = {begin, bytes, true, writable, {}, {}};
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
  std::fill_n(buffer.writers.begin() + static_cast<int64_t>(offset), bytes, kHost);
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
  for (size_t i = begin - latest_->begin, end = i + static_cast<size_t>(bytes); i < end; ++i) {
    uint32_t& writer = latest_->writers[i];
    uint8_t& atomic = latest_->atomic[i];
    if (writer >= first_block && writer != block && !(atomic != 0 && access == Access::kAtomic)) {
      return std::string(access == Access::kRead ? "read" : "write") + " of global memory that another block of the " +
             "same launch has written, byte " + std::to_string(i) + " of a buffer of " +
             std::to_string(latest_->bytes) + " bytes";
    }
    if (access != Access::kWrite && writer == kNobody) {
      return "read of global memory that nobody has written, byte " + std::to_string(i) + " of a buffer of " +
             std::to_string(latest_->bytes) + " bytes";
    }
    if (access == Access::kRead) continue;
    writer = block;
    atomic = access == Access::kAtomic ? 1 : 0;
  }
  return {};
}

}  // namespace moestro::emulation
