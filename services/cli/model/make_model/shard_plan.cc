#include "services/cli/model/make_model/shard_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "nlohmann/json.hpp"

namespace moestro::cli {
namespace {

// The order of the safetensors library: it aligns every tensor to its element size.
bool WriterOrder(const PlannedTensor* a, const PlannedTensor* b) {
  const int64_t a_bytes = a->element_bytes();
  const int64_t b_bytes = b->element_bytes();
  return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
}

std::string Header(const std::vector<const PlannedTensor*>& tensors) {
  nlohmann::ordered_json json;
  json["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const PlannedTensor* tensor : tensors) {
    const int64_t end = offset + tensor->bytes();
    nlohmann::ordered_json& entry = json[tensor->name];
    entry["dtype"] = tensor->dtype_name();
    entry["shape"] = tensor->shape;
    entry["data_offsets"] = {offset, end};
    offset = end;
  }
  std::string text = json.dump();
  text.resize(RoundUp(static_cast<int64_t>(text.size()), 8), ' ');
  static_assert(std::endian::native == std::endian::little);
  const uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

}  // namespace

std::vector<Shard> PlanShards(const std::vector<PlannedTensor>& tensors, int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (const PlannedTensor& tensor : tensors) {
    if (!shards.back().tensors.empty() && shards.back().data_bytes + tensor.bytes() > shard_bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(&tensor);
    shards.back().data_bytes += tensor.bytes();
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    Shard& shard = shards[i];
    shard.file_name = absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    std::sort(shard.tensors.begin(), shard.tensors.end(), WriterOrder);
    shard.header = Header(shard.tensors);
  }
  return shards;
}

std::string ShardIndexJson(const std::vector<Shard>& shards) {
  nlohmann::json weight_map;
  int64_t total = 0;
  for (const Shard& shard : shards) {
    total += shard.data_bytes;
    for (const PlannedTensor* tensor : shard.tensors) weight_map[tensor->name] = shard.file_name;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace moestro::cli
