// The existing buffers of device memory, and the blocks that wrote them in the current launch; host memory that kernels
// may read and write. Most accesses are to whole granules of 16 bytes that were written together, of which there is one
// record: a record for each byte would keep memory itself out of the caches.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
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
  // The same of host memory, for reading or also for writing. `changes`: threads of the host write it while kernels
  // run. It need not have been added.
  void AddHost(const void* address, int64_t bytes, bool writable, bool changes = false);
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
  // And whether it changes while kernels run.
  bool DidChange() const { return WasHost() && latest_->changes; }

 private:
  static constexpr size_t kGranule = 16;

  struct Writer {
    uint32_t block : 31 = kNobody;  // kNobody, kHost or a block's number
    uint32_t atomic : 1 = 0;        // whether the write was

    bool operator==(const Writer&) const = default;
  };
  static constexpr Writer kSplit = {.block = 0x7fffffff, .atomic = 1};  // each byte of a granule has its own

  struct Free {
    void operator()(Writer* writers) const { std::free(writers); }
  };
  struct Buffer {
    uintptr_t begin = 0;
    int64_t bytes = 0;
    bool is_host = false;  // then nobody is noted
    bool is_writable = true;
    bool changes = false;
    std::vector<Writer> granules;
    std::unique_ptr<Writer[], Free> by_byte;  // of granules that are split
  };

  // note(writer, its offset), until false, for the bytes begin to end, or once for those of a granule with one writer.
  // `writes`: it changes the writer.
  template <typename Note>
  static void ForEach(Buffer& buffer, size_t begin, size_t end, bool writes, const Note& note);

  std::string Outside(uintptr_t address, int64_t bytes, Access access) const;

  std::map<uintptr_t, Buffer> buffers_;
  Buffer* latest_ = nullptr;
};

}  // namespace moestro::emulation
