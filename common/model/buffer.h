// Memory of the forward pass.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace moestro::model {

// Zeroed, on a 64-byte boundary so that no vector load straddles a cache line.
template <typename T>
class Buffer {
 public:
  Buffer() = default;  // empty
  explicit Buffer(int64_t count) : data_(static_cast<T*>(::operator new[](Bytes(count), kAlignment))) {
    std::memset(static_cast<void*>(data_.get()), 0, Bytes(count));
  }
  T* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static size_t Bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }
  struct Free {
    void operator()(T* data) const { ::operator delete[](data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

// A type with several buffers lists them with their sizes once: Visit(sizes..., take) calls take(buffer, count) for
// each. AllocateBuffers allocates them; CountBufferBytes counts their bytes.
struct AllocateBuffers {
  template <typename T>
  void operator()(Buffer<T>& buffer, int64_t count) const {
    buffer = Buffer<T>(count);
  }
};
struct CountBufferBytes {
  template <typename T>
  void operator()(Buffer<T>&, int64_t count) {
    bytes += count * static_cast<int64_t>(sizeof(T));
  }
  int64_t bytes = 0;
};

}  // namespace moestro::model
