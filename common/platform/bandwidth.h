// Quick measurements of this machine's bandwidth, as ceilings for reported rates. Thread-safe, but two concurrent
// measurements disturb each other.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Bytes per second that `threads` threads copy together from memory to memory (each byte is read once and written
// once). Takes about 0.3 s and, temporarily, 256 MB. INVALID_ARGUMENT for threads < 1; RESOURCE_EXHAUSTED if memory or
// threads are lacking.
absl::StatusOr<double> MeasureCopyBandwidth(int threads);

// Bytes per second of a sequential read from the start of `path`: up to 256 MB or 1 s, after dropping its pages from
// the page cache. Dirty or mapped pages cannot be dropped and are read from memory. NOT_FOUND; INVALID_ARGUMENT for an
// empty file.
absl::StatusOr<double> MeasureReadRate(const std::string& path);

}  // namespace moestro
