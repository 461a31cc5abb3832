// Host memory like the roles' weights: shared pages (shmem, of 4096 bytes unless the kernel gives huge ones), written
// once, then mapped read-only. Takes no room in /dev/shm.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace moestro {

class SharedMapping {
 public:
  explicit SharedMapping(int64_t bytes) : bytes_(bytes) {
    void* const data =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      std::perror("mapping shared memory");
      std::exit(1);
    }
    data_ = static_cast<uint8_t*>(data);
  }
  ~SharedMapping() { munmap(data_, static_cast<size_t>(bytes_)); }
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // mprotect can make it writable, as with SharedMemory::ReadOnly::kLiftable.
  void Protect() const { mprotect(data_, static_cast<size_t>(bytes_), PROT_READ); }

 private:
  const int64_t bytes_;
  uint8_t* data_ = nullptr;
};

}  // namespace moestro
