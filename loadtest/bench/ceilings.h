// The limits of this machine, as works that are timed next to the kernels.
#pragma once

#include <cstdint>

#include "common/platform/worker_pool.h"
#include "loadtest/bench/probes/probes.h"
#include "loadtest/bench/timing.h"

namespace moestro::bench {

inline constexpr char kReadBandwidth[] = "read bandwidth";
inline constexpr char kDotRate[] = "dot-product rate";
inline constexpr char kVectorDotRate[] = "vector dot-product rate";
inline constexpr char kByteDotRate[] = "byte dot-product rate";
inline constexpr char kCopyBandwidth[] = "copy bandwidth";
inline constexpr char kRoofline[] = "the slower of reading and multiplying";

class Ceilings {
 public:
  // vectors: the same as `probes`, unless `probes` uses tiles. bytes: null if the CPU has none (probes/select.h).
  Ceilings(WorkerPool& pool, const Probes& probes, const Probes& vectors, const Probes* bytes)
      : pool_(pool), probes_(probes), vectors_(vectors), bytes_(bytes) {}

  // Tries prefetch distances on [data, data + bytes) and keeps the fastest: the best way of reading on this machine is
  // its ceiling.
  void Calibrate(const RoundTimer& timer, const uint8_t* data, int64_t bytes);
  const ReadAhead& read_ahead() const { return read_ahead_; }

  // All threads read [data, data + bytes) once. Amount in bytes. data is on a 64-byte boundary, bytes a multiple of
  // 256.
  Work Read(const uint8_t* data, int64_t bytes) const;
  // All threads copy. Amount in bytes read plus bytes written: twice the argument.
  Work Copy(uint8_t* to, const uint8_t* from, int64_t bytes) const;
  // All threads run chains of the dot-product instruction. Amount in multiplications and additions.
  Work Dot() const { return Dot(probes_); }
  // The same for the vector instruction, where the kernels use tiles.
  Work VectorDot() const { return Dot(vectors_); }
  // The same for vpdpbusd. REQUIRES: has_byte_dots().
  Work ByteDot() const { return Dot(*bytes_); }
  bool has_byte_dots() const { return bytes_ != nullptr; }
  bool has_tiles() const { return &probes_ != &vectors_; }

  const Probes& probes() const { return probes_; }
  const Probes& vectors() const { return vectors_; }

 private:
  Work Dot(const Probes& probes) const;

  WorkerPool& pool_;
  const Probes& probes_;
  const Probes& vectors_;
  const Probes* bytes_;
  ReadAhead read_ahead_;
};

}  // namespace moestro::bench
