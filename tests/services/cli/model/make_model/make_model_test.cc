#include "services/cli/model/make_model/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "nlohmann/json.hpp"
#include "services/cli/model/make_model/tensor_values.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, std::string> ReadFiles(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    files[entry.path().filename().string()] = ReadFile(entry.path());
  }
  return files;
}

class MakeModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / (std::string("make_model-") + std::to_string(getpid()) +
                                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const char* name) const { return (root_ / name).string(); }

  fs::path root_;
};

// Reads the checkpoint back by the rules of the format: the ranges of each shard tile its data exactly, the index names
// the shard of every tensor, and every tensor's bytes are those of the generator.
TEST_F(MakeModelTest, WritesACompleteCheckpoint) {
  ASSERT_TRUE(MakeModel({.out_dir = Path("m")}, nullptr).ok());
  const auto files = ReadFiles(Path("m"));
  const json index = json::parse(files.at("model.safetensors.index.json"));
  const std::vector<PlannedTensor> plan = PlanTensors(*ResolveModel({}));
  EXPECT_EQ(index["weight_map"].size(), plan.size());
  std::map<std::string, json> headers;
  std::map<std::string, std::string> data;
  int64_t total = 0;
  for (const auto& [name, bytes] : files) {
    if (!name.ends_with(".safetensors")) continue;
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    ASSERT_EQ(length % 8, 0u);
    headers[name] = json::parse(bytes.substr(8, length));
    data[name] = bytes.substr(8 + length);
    std::map<int64_t, int64_t> ranges;
    for (const auto& [tensor, entry] : headers[name].items()) {
      if (tensor != "__metadata__") ranges[entry["data_offsets"][0]] = entry["data_offsets"][1];
    }
    int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      ASSERT_EQ(begin, at);
      at = end;
    }
    EXPECT_EQ(at, static_cast<int64_t>(data[name].size()));
    total += at;
  }
  EXPECT_EQ(headers.size(), 4u);
  EXPECT_EQ(index["metadata"]["total_size"], total);
  for (const PlannedTensor& tensor : plan) {
    const std::string file = index["weight_map"][tensor.name];
    const json& entry = headers.at(file).at(tensor.name);
    EXPECT_EQ(entry["dtype"], DTypeName(tensor.dtype));
    ASSERT_EQ(entry["shape"].get<std::vector<int64_t>>(), tensor.shape);
    std::string expected(tensor.bytes(), '\0');
    FillValues(tensor, 1, 0, tensor.elements(), reinterpret_cast<std::byte*>(expected.data()));
    const int64_t begin = entry["data_offsets"][0];
    ASSERT_TRUE(data.at(file).compare(begin, tensor.bytes(), expected) == 0) << tensor.name;
  }
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(files.contains(name)) << name;
  }
}

TEST_F(MakeModelTest, SameSeedSameBytesOtherSeedOtherBytes) {
  MakeModelOptions options = {.layers = 2, .experts = 4};
  for (const char* name : {"a", "b", "c"}) {
    options.out_dir = Path(name);
    options.seed = name[0] == 'c' ? 2 : 1;
    ASSERT_TRUE(MakeModel(options, nullptr).ok());
  }
  EXPECT_TRUE(ReadFiles(Path("a")) == ReadFiles(Path("b")));
  EXPECT_FALSE(ReadFiles(Path("a")) == ReadFiles(Path("c")));
}

TEST_F(MakeModelTest, ProgressReachesTheTotal) {
  int64_t last = 0;
  int64_t total = 0;
  const auto progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, all);
    last = done;
    total = all;
  };
  ASSERT_TRUE(MakeModel({.out_dir = Path("m"), .layers = 1, .experts = 2}, progress).ok());
  EXPECT_GT(total, 0);
  EXPECT_EQ(last, total);
}

TEST_F(MakeModelTest, RefusesAnOccupiedDirectory) {
  ASSERT_TRUE(MakeModel({.out_dir = Path("m"), .layers = 1, .experts = 2}, nullptr).ok());
  const auto before = ReadFiles(Path("m"));
  const absl::Status status = MakeModel({.out_dir = Path("m"), .seed = 5, .layers = 1, .experts = 2}, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(ReadFiles(Path("m")) == before);
  EXPECT_TRUE(MakeModel({.out_dir = Path("m"), .seed = 5, .layers = 1, .experts = 2, .force = true}, nullptr).ok());
  EXPECT_FALSE(ReadFiles(Path("m")) == before);
}

TEST_F(MakeModelTest, TokenizerMustFitTheVocabulary) {
  const absl::Status status = MakeModel({.out_dir = Path("m"), .vocab_rows = 512}, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--vocab-rows is 512"));
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace moestro::cli
