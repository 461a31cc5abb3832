// The existing buffers of device memory, and the blocks that wrote them in the current launch; host memory that kernels
// may read and write.
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

  // Adds [address, address + bytes), until Remove(address).
  void Add(const void* address, int64_t bytes);
  void Remove(const void* address);
  // The same of host memory, for reading or also for writing. It need not have been added.
  void AddHost(const void* address, int64_t bytes, bool writable);
  void RemoveHost(const void* address);
  // The host has written these bytes.
  void Fill(const void* address, int64_t bytes);

  static constexpr uint32_t kNobody = 0, kHost = 1;

  // The fault of the access by block number `block` (above kHost; numbers grow from launch to launch), or nothing.
  // first_block: the first of the current launch.
  std::string Check(const void* address, int64_t bytes, Access access, uint32_t block, uint32_t first_block);
  bool Has(const void* address) const;
  // Whether what was checked last is host memory.
  bool WasHost() const { return latest_ != nullptr && latest_->is_host; }

 private:
  struct Buffer {
    uintptr_t begin = 0;
    int64_t bytes = 0;
    bool is_host = false;  // then without writers
    bool is_writable = true;
    std::vector<uint32_t> writers;  // by byte: kNobody, kHost or a block's number
    std::vector<uint8_t> atomic;    // by byte: whether the write was atomic
  };

  std::string Outside(uintptr_t address, int64_t bytes, Access access) const;

  std::map<uintptr_t, Buffer> buffers_;
  Buffer* latest_ = nullptr;
};

}  // namespace moestro::emulation
