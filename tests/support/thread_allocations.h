// Counts what each thread allocates. Who links it has the operators new of thread_allocations.cc.
#pragma once

#include <cstdint>

namespace moestro {

// Calls of operator new that the calling thread has made so far, but for those in scopes of UncountedAllocations.
int64_t ThreadAllocations();

class UncountedAllocations {
 public:
  UncountedAllocations();
  ~UncountedAllocations();
  UncountedAllocations(const UncountedAllocations&) = delete;
  UncountedAllocations& operator=(const UncountedAllocations&) = delete;
};

}  // namespace moestro
