// The buffers of device memory that exist, and which block wrote what in the current launch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda/emulation/machine.h"

namespace moestro::emulation {

class GlobalMemory {
 public:
  static GlobalMemory& Get();

  // [address, address + bytes) exists from now on, until Remove(address).
  void Add(const void* address, int64_t bytes);
  void Remove(const void* address);
  // The host has written it.
  void Fill(const void* address, int64_t bytes);

  static constexpr uint32_t kNobody = 0, kHost = 1;

  // What is wrong with the access of block number `block` (above kHost; numbers grow from launch to launch), or
  // nothing. first_block: of the current launch.
  std::string Check(const void* address, int64_t bytes, Access access, uint32_t block, uint32_t first_block);

 private:
  struct Buffer {
    uintptr_t begin = 0;
    int64_t bytes = 0;
    std::vector<uint32_t> writers;  // by byte; kNobody, kHost or the number of a block
    std::vector<uint8_t> atomic;    // by byte: the write was
  };

  std::string Outside(uintptr_t address, int64_t bytes, Access access) const;

  std::map<uintptr_t, Buffer> buffers_;
  Buffer* latest_ = nullptr;
};

}  // namespace moestro::emulation
