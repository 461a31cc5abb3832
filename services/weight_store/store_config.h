// What the weight store can be told.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/process/cpu_options.h"
#include "common/process/node_options.h"

namespace moestro {

struct StoreConfig {
  NodeOptions node;
  CpuShare share;
  std::string model_dir;      // the checkpoint
  std::string model_name;     // as clients see it; empty = the directory's name
  int threads = 0;            // packing threads; 0 = one per CPU that the process may use
  int numa_domains = 0;       // for which the weights are placed in memory; 0 = one per NUMA node
  bool keep_segment = false;  // leave the segment in shared memory on SIGTERM, for the next start to adopt
};

// INVALID_ARGUMENT names the flag. Fills in the model's name.
absl::Status ValidateStoreConfig(StoreConfig& config);

}  // namespace moestro
