// Steps whose experts stream to a GPU or the model of one, while the CPU attends: near the engine on the CPU, and with
// the same bits for every schedule, micro-batch and share of the experts that stays.
#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_batch.h"
#include "services/decode/throughput/batch_forward.h"
#include "tests/cuda/decode/hybrid_subject.h"
#include "tests/cuda/near.h"
#include "tests/services/decode/step_fixture.h"
#include "tests/support/faulty_device.h"

namespace moestro::decode {

using weights::ModelSpec;

namespace {

using enum BatchSchedule;

// Of the shapes that the kernels have, in layers enough that not all experts fit.
ModelSpec Latents() {
  ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 5;
  return spec;
}
ModelSpec Grouped() {
  ModelSpec spec = SmallGroupedSpec();
  spec.num_layers = 4;
  return spec;
}
ModelSpec Gated() {
  ModelSpec spec = SmallGatedSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 5;
  return spec;
}

class CudaBatchTest : public StepTest {
 protected:
  explicit CudaBatchTest(const ModelSpec& spec = Latents())
      : CudaBatchTest(
            SyntheticOptions{.spec = spec, .decisive_biases = spec.softmax_router == 0, .nan_token = kNanToken}) {}
  explicit CudaBatchTest(const SyntheticOptions& options) : StepTest(options) {}

  absl::StatusOr<std::unique_ptr<BatchForward>> Create(device::Device& device, BatchSchedule schedule,
                                                       int64_t micro_batch, int64_t memory_bytes) {
    const auto make = [&](const model::ModelWeights& on_device) {
      return engine::CudaBatch::Create(device, spec(), weights_, on_device, kMaxRows, Int8Activations::kPublished);
    };
    const std::array<device::Device*, 1> devices = {&device};
    auto forward = BatchForward::Create(spec(), weights_, TestKernels(), pool_, devices, make,
                                        {.max_rows = kMaxRows, .schedule = schedule, .memory_bytes = memory_bytes});
    if (forward.ok()) (*forward)->set_micro_batch(micro_batch);
    return forward;
  }
  // The least memory with which it begins, in steps of an expert.
  int64_t LeastMemory() {
    int64_t memory = 0;
    while (!Create(*device_, kCgoPipe, 1, memory).ok()) memory += 64 << 10;
    return memory;
  }

  void ExpectNearTheEngine(const std::vector<model::EngineRow>& rows, bool coded = false) {
    CpuForward engine(*engine_);
    model::Logits expected, first;
    ASSERT_TRUE(Run(engine, rows, &expected).ok());
    const std::vector<uint16_t> expected_kv = Kv(rows);
    std::vector<uint16_t> first_kv;
    std::set<int64_t> resident;
    const int64_t least = LeastMemory();
    for (const auto& [schedule, micro_batch, memory] :
         {std::tuple(kCgoPipe, 1, least), std::tuple(kCgoPipe, 2, least * 5 / 4), std::tuple(kS3, 8, 2 * least)}) {
      SCOPED_TRACE(::testing::Message() << WordOf(kBatchScheduleWords, schedule) << ", micro-batches of "
                                        << micro_batch);
      const auto forward = Create(*device_, schedule, micro_batch, memory).value();
      resident.insert(forward->pages().resident());
      for (int step = 0; step < 2; ++step) {  // the second finds its first layer there
        ForgetKv(rows);
        model::Logits logits;
        const absl::Status status = Run(*forward, rows, &logits);
        ASSERT_TRUE(status.ok()) << status;
        if (first.empty()) {
          ExpectNear(spec(), logits, expected, coded);
          ExpectNear(spec(), Kv(rows), expected_kv, coded);
          first = logits;
          first_kv = Kv(rows);
        }
        EXPECT_TRUE(model::SameBits(logits, first));
        EXPECT_EQ(Kv(rows), first_kv);
      }
    }
    EXPECT_GT(resident.size(), 1u);
  }

  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const std::unique_ptr<device::Device> device_ = device::OpenCudaDevice({.memory_bytes = int64_t{1} << 30}).value();
};

TEST_F(CudaBatchTest, IsNearTheEngine) { ExpectNearTheEngine(Step(3)); }
TEST_F(CudaBatchTest, IsNearTheEngineWithAPromptInTheStep) { ExpectNearTheEngine(Step(2, 9)); }

TEST_F(CudaBatchTest, AnErrorEndsTheStepAndNotTheNextOne) {
  const auto forward = Create(*device_, kCgoPipe, 1, LeastMemory()).value();
  std::vector<model::EngineRow> rows = Step(2);
  model::Logits before, after;
  ASSERT_TRUE(Run(*forward, rows, &before).ok());
  rows[1].token = kNanToken;
  const absl::Status status = Run(*forward, rows, &after);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  rows[1].token = Step(2)[1].token;
  ASSERT_TRUE(Run(*forward, rows, &after).ok());
  EXPECT_TRUE(model::SameBits(after, before));
}

TEST_F(CudaBatchTest, TakesTheMemoryThatItSays) {
  const int64_t used = device_->memory_used();
  const auto forward = Create(*device_, kCgoPipe, 1, LeastMemory()).value();
  EXPECT_EQ(
      device_->memory_used() - used,
      forward->device_bytes() + engine::CudaBatch::Bytes(spec(), weights_, kMaxRows, Int8Activations::kPublished));
}

TEST_F(CudaBatchTest, DoesNotAttend) {
  const auto forward = Create(*device_, kS4, 1, int64_t{64} << 20).value();
  model::Logits logits;
  EXPECT_EQ(Run(*forward, Step(1), &logits).code(), absl::StatusCode::kUnimplemented);
}

class GroupedCudaBatchTest : public CudaBatchTest {
 protected:
  GroupedCudaBatchTest() : CudaBatchTest(Grouped()) {}
};
TEST_F(GroupedCudaBatchTest, IsNearTheEngine) { ExpectNearTheEngine(Step(3, 2)); }

class GatedCudaBatchTest : public CudaBatchTest {
 protected:
  GatedCudaBatchTest() : CudaBatchTest(Gated()) {}
};
TEST_F(GatedCudaBatchTest, IsNearTheEngine) { ExpectNearTheEngine(Step(2)); }

class Int8CudaBatchTest : public CudaBatchTest {
 protected:
  Int8CudaBatchTest() : CudaBatchTest(SyntheticOptions{.spec = Grouped(), .type = DType::kI8}) {}
};
TEST_F(Int8CudaBatchTest, IsNearTheEngine) { ExpectNearTheEngine(Step(2), /*coded=*/true); }

}  // namespace
}  // namespace moestro::decode
