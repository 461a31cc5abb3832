// Settings of the weight store.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/process/cpu_options.h"
#include "common/process/node_options.h"

namespace moestro::store {

struct StoreConfig {
  NodeOptions node;
  CpuShare share;
  std::string model_dir;      // the checkpoint: a directory, a *.gguf file, or org/name in the cache of downloads
  std::string model_name;     // as clients see it; empty = org/name, or the name of the directory or file
  int threads = 0;            // packing threads; 0 = one per CPU that the process may use
  int numa_domains = 0;       // NUMA domains in which weights are placed; 0 = one per NUMA node
  bool keep_segment = false;  // on SIGTERM leave the segment for the next start to adopt
};

// Errors name the flag; those of --model are LocateModel's. Makes model_dir an absolute path, and fills in an
// empty model_name.
absl::Status ValidateStoreConfig(StoreConfig& config);

}  // namespace moestro::store
