// What products that run in the background (wgmma) hold of a thread's registers, which the emulated kernel has as
// arrays on its stack. An access to a register that the PTX ISA forbids is a fault.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moestro::emulation {

class ThreadProducts {
 public:
  // Whether there may be faults: the thread has fenced.
  bool active() const { return fenced_; }
  int64_t commits() const { return commits_; }

  // These return the fault, or nothing. Of an access to the stack, by the kernel:
  std::string Access(const void* address, int64_t bytes, bool write);
  // A product begins that adds to `count` accumulators from d on and reads 4 registers from a on.
  std::string Begin(float* d, int count, const uint32_t* a);

  // wgmma.fence: accesses before it are ordered before products after it.
  void Fence();
  // The values that the accumulators have, or will have: of the last Begin.
  std::vector<float>& Values(const float* d);
  void Commit() { ++commits_; }
  // Waits until at most `groups` of the latest groups are in flight: accumulators get their values. The groups that
  // this ends, from the first one to the one behind the last.
  std::pair<int64_t, int64_t> Wait(int64_t groups);

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    bool Meets(uintptr_t from, uintptr_t to) const { return from < end && begin < to; }
  };
  struct Accumulators {
    float* d = nullptr;
    std::vector<float> values;
    int64_t group = 0;  // of the last product that adds to them
  };
  struct Operand {
    Range range;
    int64_t group = 0;
  };

  bool fenced_ = false;
  int64_t commits_ = 0;
  int64_t done_ = 0;
  std::vector<Accumulators> accumulators_;  // in flight
  std::vector<Operand> operands_;           // in flight
  std::vector<Range> touched_;              // since the last fence
};

// A descriptor of B: where 16 bytes lie in shared memory, of a column of B or, transposed, of a row. PTX ISA,
// "Asynchronous warpgroup level matrix instructions", "Matrix descriptor" and "Shared memory layout".
struct ColumnsDescriptor {
  explicit ColumnsDescriptor(uint64_t bits);

  // Nothing, or why it describes none that is modelled.
  std::string Fault(bool transposed) const;
  // Of a column of B, a row of memory.
  int64_t Address(int row, int chunk) const;
  // Of a row of B: 64 columns are a row of memory, the next 64 lie `leading` further.
  int64_t TransposedAddress(int row, int chunk) const;

  int64_t begin = 0;
  int64_t leading = 0;  // bytes between chunks of a row, if it is not swizzled; transposed: between rows' 64 columns
  int64_t stride = 0;   // bytes between 8 rows and the next
  int base_offset = 0;
  int64_t row_bytes = 0;  // of swizzled rows; 16: not swizzled

 private:
  int64_t Swizzled(int64_t address) const;
};

}  // namespace moestro::emulation
