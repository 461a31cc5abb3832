// Assigns tensors to safetensors files, and writes the headers of these files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/cli/model/make_model/tensor_plan.h"

namespace moestro::cli {

struct Shard {
  std::string file_name;                      // model-00001-of-0000N.safetensors
  std::vector<const PlannedTensor*> tensors;  // in file order: larger element types first, then by name
  std::string header;                         // length prefix and padded JSON; the data follows directly
  int64_t data_bytes = 0;
};

// Fills shards in checkpoint order, and starts a new one before a tensor that would exceed `shard_bytes`. So a weight
// and its scales may be in different shards. Pointers refer to `tensors`, which must outlive the result.
std::vector<Shard> PlanShards(const std::vector<PlannedTensor>& tensors, int64_t shard_bytes);

// model.safetensors.index.json.
std::string ShardIndexJson(const std::vector<Shard>& shards);

}  // namespace moestro::cli
