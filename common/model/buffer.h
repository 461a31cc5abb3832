// Memory of the forward pass.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace moestro {

// Zeroed, on a 64-byte boundary so that no vector load straddles a cache line.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : data_(static_cast<T*>(::operator new[](Bytes(count), kAlignment))) {
    std::memset(static_cast<void*>(data_.get()), 0, Bytes(count));
  }
  // Memory of another buffer, which must outlive this one.
  static Buffer View(T* data) { return Buffer(data, Free{.owned = false}); }
  T* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static size_t Bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }
  struct Free {
    void operator()(T* data) const {
      if (owned) ::operator delete[](data, kAlignment);
    }
    bool owned = true;
  };
  Buffer(T* data, Free free) : data_(data, free) {}
  std::unique_ptr<T, Free> data_;
};

}  // namespace moestro
