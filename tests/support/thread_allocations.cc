#include "tests/support/thread_allocations.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "common/base/math.h"

namespace moestro {
namespace {

thread_local int64_t allocations = 0;
thread_local int uncounted = 0;  // scopes

// Null if there is no memory.
void* TryAllocate(size_t bytes, size_t alignment) {
  if (uncounted == 0) ++allocations;
  const auto whole =
      static_cast<size_t>(RoundUp(static_cast<int64_t>(std::max<size_t>(bytes, 1)), static_cast<int64_t>(alignment)));
  return std::aligned_alloc(alignment, whole);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* const memory = TryAllocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t ThreadAllocations() { return allocations; }
UncountedAllocations::UncountedAllocations() { ++uncounted; }
UncountedAllocations::~UncountedAllocations() { --uncounted; }

}  // namespace moestro

// The standard library's other forms call these. AddressSanitizer's do not, and its nothrow forms share the deletes
// below.
void* operator new(size_t bytes) { return moestro::Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return moestro::Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return moestro::TryAllocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return moestro::TryAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
