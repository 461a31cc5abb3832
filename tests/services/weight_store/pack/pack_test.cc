#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <new>

#include "common/weights/segment.h"
#include "common/weights/tensor_size.h"
#include "services/weight_store/pack/jobs.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using testing::ExpectError;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Overwrites the tensor's bytes from `at`, packs with 2 threads and expects INVALID_ARGUMENT that names file and
// tensor.
void ExpectDamageIsFound(bool fp8, const std::string& tensor, size_t at, const std::string& bytes) {
  RandomCheckpoint random(fp8 ? BlockSpec() : OddSpec(), fp8);
  ASSERT_LE(at + bytes.size(), random.tensors().at(tensor).data.size());
  random.tensors().at(tensor).data.replace(at, bytes.size(), bytes);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed packed = PackInMemory(checkpoint, random.spec(), {.threads = 2});
  ExpectError(packed.status, absl::StatusCode::kInvalidArgument, {tensor, random.dir().path(), ".safetensors"});
  EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
}

TEST(Pack, BytesDoNotDependOnThreads) {
  RandomCheckpoint random(BlockSpec(), true);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed one = PackInMemory(checkpoint, random.spec(), {.threads = 1});
  ASSERT_TRUE(one.status.ok()) << one.status;
  for (const int threads : {2, 3}) {
    const Packed more = PackInMemory(checkpoint, random.spec(), {.threads = threads});
    ASSERT_TRUE(more.status.ok()) << more.status;
    ASSERT_EQ(one.memory.size(), more.memory.size());
    EXPECT_EQ(std::memcmp(one.memory.data(), more.memory.data(), static_cast<size_t>(one.memory.size())), 0);
  }
}

TEST(Pack, DamagedWeightsAreNamed) {
  const std::string kv_b = "model.layers.0.self_attn.kv_b_proj.weight";
  const std::string expert = "model.layers.1.mlp.experts.2.up_proj.weight";
  ExpectDamageIsFound(true, expert, 5, "\x7f");
  ExpectDamageIsFound(true, expert, 35 * 201 - 1, "\xff");
  ExpectDamageIsFound(true, kv_b, 0, "\xff");
}

TEST(Pack, DamagedScalesAreNamed) {
  const std::string scale = "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv";
  for (const float value : {kNan, kInfinity, -kInfinity, -1.0f, -0.0f}) {
    ExpectDamageIsFound(true, scale, 4, BytesOf(value));
  }
}

TEST(Pack, DamagedNormsRoutersAndBiasesAreNamed) {
  ExpectDamageIsFound(false, "model.layers.0.input_layernorm.weight", 138, BytesOf(uint16_t{0x7f80}));
  ExpectDamageIsFound(false, "model.layers.1.input_layernorm.weight", 0, BytesOf(kNan));
  ExpectDamageIsFound(false, "model.layers.1.mlp.gate.weight", 0, BytesOf(uint16_t{0xffc0}));
  ExpectDamageIsFound(false, "model.layers.1.mlp.gate.e_score_correction_bias", 16, BytesOf(-kInfinity));
  ExpectDamageIsFound(false, "model.norm.weight", 0, BytesOf(kInfinity));
}

TEST(Pack, FirstDamageInReadingOrderIsReportedByAnyNumberOfThreads) {
  RandomCheckpoint random(BlockSpec(), true);
  for (const int expert : {0, 1, 2, 3, 4}) {
    const std::string name = "model.layers.1.mlp.experts." + std::to_string(expert) + ".up_proj.weight";
    random.tensors().at(name).data[0] = '\x7f';
  }
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const absl::Status one = PackInMemory(checkpoint, random.spec(), {.threads = 1}).status;
  for (int repeat = 0; repeat < 5; ++repeat) {
    EXPECT_EQ(PackInMemory(checkpoint, random.spec(), {.threads = 3}).status, one);
  }
}

TEST(Pack, FileThatBecomesShorterIsNamed) {
  RandomCheckpoint random(OddSpec(), false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const std::string path = random.dir().path() + "/b.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const Packed packed = PackInMemory(checkpoint, random.spec(), {.threads = 2});
  ExpectError(packed.status, absl::StatusCode::kDataLoss, {path, "truncated", "tensor"});
  EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
}

TEST(Pack, ProgressGrowsToTheTotal) {
  RandomCheckpoint random(OddSpec(), false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  std::vector<int64_t> seen;
  int64_t announced = 0;
  PackOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    seen.push_back(done);
    announced = total;
  };
  const Packed packed = PackInMemory(checkpoint, random.spec(), options);
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  EXPECT_GT(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), announced);
  EXPECT_EQ(packed.writer->header().loaded_bytes.load(), announced);
  EXPECT_EQ(seen[seen.size() - 2], announced) << "the pieces add up to the total";
}

TEST(Pack, InterruptStopsAndFails) {
  RandomCheckpoint random(OddSpec(), false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  int calls = 0;
  PackOptions options;
  options.interrupt = [&] { return ++calls < 3 ? absl::OkStatus() : absl::CancelledError("stop it"); };
  const Packed packed = PackInMemory(checkpoint, random.spec(), options);
  ExpectError(packed.status, absl::StatusCode::kCancelled, {"stop it"});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
}

TEST(Pack, WantOfMemoryStopsAndFails) {
  RandomCheckpoint random(OddSpec(), false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  PackOptions options;
  options.progress = [](int64_t, int64_t) { throw std::bad_alloc(); };
  const Packed packed = PackInMemory(checkpoint, random.spec(), options);
  ExpectError(packed.status, absl::StatusCode::kResourceExhausted, {"memory"});
  EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
}

TEST(Pack, JobsCoverEverySliceOnceInFileOrder) {
  weights::ModelSpec spec = OddSpec();
  spec.vocab_size = 70000;
  RandomCheckpoint random(spec, false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const auto inventory = checkpoint::CheckInventory(checkpoint, spec);
  ASSERT_TRUE(inventory.ok());
  const auto plan = checkpoint::MakePlan(*inventory, spec);
  ASSERT_TRUE(plan.ok());
  std::vector<int64_t> next(plan->tensors.size());
  std::vector<int64_t> bytes(plan->tensors.size());
  std::pair<int, int64_t> place;
  for (const PackJob& job : MakeJobs(*plan)) {
    EXPECT_EQ(job.first_slice, next[job.tensor]);
    next[job.tensor] += job.slice_count;
    bytes[job.tensor] += job.bytes;
    EXPECT_LE(job.bytes, 4 << 20);
    const checkpoint::TensorRef& weight = plan->sources[job.tensor].weight;
    EXPECT_GE(std::pair(weight.shard, weight.info->file_offset), place);
    place = {weight.shard, weight.info->file_offset};
  }
  for (size_t i = 0; i < next.size(); ++i) {
    const weights::TensorPlan& tensor = plan->tensors[i];
    EXPECT_EQ(next[i], (tensor.rows + 63) / 64) << tensor.name;
    EXPECT_EQ(bytes[i], weights::TensorDataBytes(tensor.layout, tensor.dtype, tensor.rows, tensor.cols)) << tensor.name;
  }
}

}  // namespace
}  // namespace moestro::store
