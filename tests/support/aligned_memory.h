// Zeroed heap memory on a page boundary, of exactly the requested size, so that sanitizers see any access past its end.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace moestro {

class AlignedMemory {
 public:
  static constexpr std::align_val_t kAlignment{4096};

  AlignedMemory() = default;
  explicit AlignedMemory(int64_t bytes)
      : data_(static_cast<uint8_t*>(::operator new(static_cast<size_t>(bytes), kAlignment))), size_(bytes) {
    std::memset(data_.get(), 0, static_cast<size_t>(bytes));
  }

  uint8_t* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  int64_t size_ = 0;
};

}  // namespace moestro
