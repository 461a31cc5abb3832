// Counts each thread's allocations. Binaries that link it have the operators new of thread_allocations.cc.
#pragma once

#include <cstdint>

namespace moestro {

// Calls of operator new by the calling thread so far, except those in scopes of UncountedAllocations.
int64_t ThreadAllocations();

class UncountedAllocations {
 public:
  UncountedAllocations();
  ~UncountedAllocations();
  UncountedAllocations(const UncountedAllocations&) = delete;
  UncountedAllocations& operator=(const UncountedAllocations&) = delete;
};

}  // namespace moestro
