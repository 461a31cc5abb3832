// Quick measurements of what this machine can move, as ceilings to report other rates against. Thread-safe, but two at
// a time disturb each other.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Bytes copied per second from memory to memory by `threads` threads together (each byte is read once and written
// once). Takes about 0.3 s and 256 MB for the moment. INVALID_ARGUMENT for threads < 1; RESOURCE_EXHAUSTED without the
// memory or the threads.
absl::StatusOr<double> MeasureCopyBandwidth(int threads);

// Bytes per second read sequentially from the start of `path`, up to 256 MB or for 1 s, after its pages were dropped
// from the page cache. Pages that are dirty or mapped by someone cannot be dropped and are read from memory. NOT_FOUND;
// INVALID_ARGUMENT for an empty file.
absl::StatusOr<double> MeasureReadRate(const std::string& path);

}  // namespace moestro
