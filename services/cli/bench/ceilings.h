// What this machine can do at most, as works to be timed next to the kernels.
#pragma once

#include <cstdint>

#include "common/platform/worker_pool.h"
#include "services/cli/bench/probes/probes.h"
#include "services/cli/bench/timing.h"

namespace moestro::bench {

inline constexpr char kReadBandwidth[] = "read bandwidth";
inline constexpr char kDotRate[] = "dot-product rate";
inline constexpr char kCopyBandwidth[] = "copy bandwidth";

class Ceilings {
 public:
  Ceilings(WorkerPool& pool, const Probes& probes) : pool_(pool), probes_(probes) {}

  // Tries prefetch distances on [data, data + bytes) and keeps the fastest: whichever way of reading suits the machine
  // best is its ceiling.
  void Calibrate(const RoundTimer& timer, const uint8_t* data, int64_t bytes);
  int64_t prefetch_bytes() const { return prefetch_bytes_; }

  // All threads read [data, data + bytes) once. In bytes. data on a 64-byte boundary, bytes a multiple of 256.
  Work Read(const uint8_t* data, int64_t bytes) const;
  // All threads copy. In bytes read plus bytes written: twice the argument.
  Work Copy(uint8_t* to, const uint8_t* from, int64_t bytes) const;
  // All threads run chains of the dot-product instruction. In multiplications and additions.
  Work Dot() const;

  const Probes& probes() const { return probes_; }

 private:
  WorkerPool& pool_;
  const Probes& probes_;
  int64_t prefetch_bytes_ = 4096;
};

}  // namespace moestro::bench
