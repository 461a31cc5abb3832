#include "services/cli/model/make_model/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "nlohmann/json.hpp"

namespace moestro::cli {
namespace {

using ::testing::ElementsAre;

nlohmann::json ParseHeader(const Shard& shard) {
  uint64_t length = 0;
  std::memcpy(&length, shard.header.data(), sizeof length);
  EXPECT_EQ(length + 8, shard.header.size());
  return nlohmann::json::parse(shard.header.substr(8));
}

PlannedTensor Tensor(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  PlannedTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  return tensor;
}

TEST(ShardPlanTest, LargerTypesFirstThenNames) {
  const std::vector<PlannedTensor> tensors = {Tensor("c", DType::kF8E4M3, {3}), Tensor("b", DType::kBF16, {2, 2}),
                                              Tensor("d", DType::kF32, {1}), Tensor("a", DType::kBF16, {1})};
  const std::vector<Shard> shards = PlanShards(tensors, 1000);
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_EQ(shards[0].file_name, "model-00001-of-00001.safetensors");
  EXPECT_EQ(shards[0].data_bytes, 17);
  EXPECT_EQ(shards[0].header.size() % 8, 0u);
  const nlohmann::json header = ParseHeader(shards[0]);
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_THAT(header["d"]["data_offsets"], ElementsAre(0, 4));
  EXPECT_THAT(header["a"]["data_offsets"], ElementsAre(4, 6));
  EXPECT_THAT(header["b"]["data_offsets"], ElementsAre(6, 14));
  EXPECT_THAT(header["b"]["shape"], ElementsAre(2, 2));
  EXPECT_EQ(header["b"]["dtype"], "BF16");
  EXPECT_THAT(header["c"]["data_offsets"], ElementsAre(14, 17));
  EXPECT_EQ(header["c"]["dtype"], "F8_E4M3");
}

TEST(ShardPlanTest, ANewShardStartsBeforeTheLimitIsExceeded) {
  const std::vector<PlannedTensor> tensors = {Tensor("a", DType::kF8E4M3, {6}), Tensor("b", DType::kF8E4M3, {4}),
                                              Tensor("c", DType::kF8E4M3, {1}), Tensor("d", DType::kF8E4M3, {100})};
  const std::vector<Shard> shards = PlanShards(tensors, 10);
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_THAT(shards[0].tensors, ElementsAre(&tensors[0], &tensors[1]));
  EXPECT_THAT(shards[1].tensors, ElementsAre(&tensors[2]));
  EXPECT_THAT(shards[2].tensors, ElementsAre(&tensors[3]));
  EXPECT_EQ(shards[2].file_name, "model-00003-of-00003.safetensors");
}

TEST(ShardPlanTest, IndexMapsEveryTensorAndCountsBytes) {
  const std::vector<PlannedTensor> tensors = {Tensor("a", DType::kF32, {2}), Tensor("b", DType::kBF16, {3})};
  const nlohmann::json index = nlohmann::json::parse(ShardIndexJson(PlanShards(tensors, 8)));
  EXPECT_EQ(index["metadata"]["total_size"], 14);
  EXPECT_EQ(index["weight_map"]["a"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00002.safetensors");
}

TEST(ShardPlanTest, TinyPartsAWeightFromItsScales) {
  const MadeModel model = *ResolveModel({});
  const std::vector<PlannedTensor> tensors = PlanTensors(model);
  std::map<std::string, std::string> file_of;
  for (const Shard& shard : PlanShards(tensors, model.shard_bytes)) {
    for (const PlannedTensor* tensor : shard.tensors) file_of[tensor->name] = shard.file_name;
  }
  int parted = 0;
  for (const auto& [name, file] : file_of) {
    const auto scale = file_of.find(name + "_scale_inv");
    if (scale != file_of.end() && scale->second != file) ++parted;
  }
  EXPECT_EQ(parted, 1);
}

}  // namespace
}  // namespace moestro::cli
