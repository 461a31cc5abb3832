// Prompts shared by ranks on GPUs, or on the model of one: against the engine on the CPU, and one rank against one
// device. With fewer GPUs than ranks, ranks share them.
#include "services/prefill/distributed/distributed_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_prefill.h"
#include "common/engine/cuda/cuda_rank_kernels.h"
#include "tests/common/model/engine_harness.h"
#include "tests/cuda/near.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro {
namespace {

constexpr ExpertParallelism kExperts[] = {ExpertParallelism::kSmall, ExpertParallelism::kStandard};
constexpr MemoryLimits kLimits{.dense_bytes = 8 << 20, .ring_slots = 2};
constexpr double kPatience = 600;  // the model of a GPU is slow

const char* Name(ExpertParallelism experts) { return experts == ExpertParallelism::kSmall ? "SmallEP" : "standard EP"; }

// A dense layer, then a layer whose experts depend on the tokens. Nothing follows it, so another choice would change
// only the row's own logits.
ModelSpec Spec() {
  ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  return spec;
}

struct Result {
  absl::Status status;
  Logits logits;
  std::vector<uint16_t> kv;
};

// A model, and its prompts on ranks of GPUs.
class Subject {
 public:
  explicit Subject(const ModelSpec& model, int32_t nan_token = -1)
      : model_(MakeSyntheticSegment({.spec = model, .nan_token = nan_token})),
        weights_(BindWeights(*model_.segment).value()) {}

  const ModelSpec& spec() const { return model_.segment->spec(); }
  std::vector<int32_t> Tokens(int64_t count) const { return RandomTokens(count, spec().token_count, 3); }

  // Results of the tokens from `cached` on; the engine on the CPU has computed the earlier ones.
  Result OnRanks(int ranks, ExpertParallelism experts, std::span<const int32_t> tokens, int64_t cached = 0) {
    std::vector<std::unique_ptr<device::Device>> devices;
    std::vector<std::unique_ptr<CudaRankKernels>> kernels;
    std::vector<RankSetup> setups;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.push_back(Open(rank));
      kernels.push_back(std::make_unique<CudaRankKernels>(*devices.back(), spec(), weights_));
      setups.push_back({.device = devices.back().get(), .kernels = kernels.back().get()});
    }
    DistributedPrefill prefill(spec(), weights_, setups,
                               {.experts = experts,
                                .limits = kLimits,
                                .new_group = [](int n) { return NewHeapGroup(n, {.timeout_seconds = kPatience}); },
                                .patience_seconds = kPatience});
    const Result result = Run(prefill, tokens, cached);
    for (const auto& device : devices) EXPECT_EQ(device->memory_used(), 0);
    return result;
  }

  Result OnOneDevice(std::span<const int32_t> tokens) {
    const auto device = Open(0);
    CudaPrefill compute(*device, spec(), weights_);
    StreamPrefill prefill(*device, spec(), weights_, compute, kLimits);
    return Run(prefill, tokens, 0);
  }

  // Keys, values and the last rows' logits within the tolerance between devices.
  void ExpectAgrees(int ranks, ExpertParallelism experts, int64_t count, int64_t cached = 0) {
    SCOPED_TRACE(testing::Message() << Name(experts) << ", " << count << " tokens after " << cached << " on " << ranks
                                    << " ranks");
    const std::vector<int32_t> tokens = Tokens(count);
    const TestSequence expected(spec(), count);
    const Logits expected_logits = RunPrompt(*engine_, expected, tokens, kChunk, MlaForm::kUnabsorbed);
    const Result result = OnRanks(ranks, experts, tokens, cached);
    ASSERT_TRUE(result.status.ok()) << result.status;
    ASSERT_EQ(result.logits.size(), static_cast<size_t>(std::min(kLogits, count - cached)));
    ExpectNear(spec(), result.logits, expected_logits);
    ExpectNear(spec(), result.kv, expected.Contents(count));
  }

 private:
  static constexpr int64_t kChunk = 128;
  static constexpr int64_t kLogits = 2;

  static std::unique_ptr<device::Device> Open(int rank) {
    constexpr int64_t kBytes = int64_t{1} << 30;
    auto device = device::OpenCudaDevice({.ordinal = rank, .memory_bytes = kBytes});
    if (!device.ok()) device = device::OpenCudaDevice({.memory_bytes = kBytes});
    return *std::move(device);
  }

  template <typename Prefill>
  Result Run(Prefill& prefill, std::span<const int32_t> tokens, int64_t cached) {
    const TestSequence sequence(spec(), std::ssize(tokens));
    if (cached > 0) RunPrompt(*engine_, sequence, tokens.first(cached), kChunk, MlaForm::kUnabsorbed);
    std::vector<EngineRow> rows = MakeRows(tokens.subspan(cached), cached);
    for (int64_t i = 0; i < std::ssize(rows); ++i) rows[i].wants_logits = i + kLogits >= std::ssize(rows);
    const KvPages pages[] = {sequence.pages()};
    Result result;
    result.status =
        prefill.Run(rows, pages, MlaForm::kUnabsorbed, NeverInterrupted, {},
                    [&](int64_t, std::span<const float> row) { result.logits.emplace_back(row.begin(), row.end()); });
    result.kv = sequence.Contents(std::ssize(tokens));
    return result;
  }

  const SyntheticSegment model_;
  const ModelWeights weights_;
  WorkerPool pool_{2};
  const std::unique_ptr<Engine> engine_ =
      Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = kChunk}).value();
};

// Blocks that do not divide evenly, an incomplete last one, a stripe without rows, a rank that has only experts.
TEST(CudaDistributedTest, TwoRanksAgreeWithTheEngine) {
  Subject subject(Spec());
  for (const ExpertParallelism experts : kExperts) {
    for (const int64_t count : {5, 150}) subject.ExpectAgrees(2, experts, count);
  }
}

TEST(CudaDistributedTest, AfterWhatIsCached) {
  Subject subject(Spec());
  subject.ExpectAgrees(2, ExpertParallelism::kSmall, 140, /*cached=*/100);
}

TEST(CudaDistributedTest, ThreeRanksManyHeadsNoSharedExpertNoQueryRank) {
  ModelSpec spec = Spec();
  spec.q_lora_rank = 0;
  spec.num_shared_experts = 0;
  spec.num_heads = kCudaHeads + 3;
  Subject subject(spec);
  subject.ExpectAgrees(3, ExpertParallelism::kSmall, 70);
}

TEST(CudaDistributedTest, GroupedQueries) {
  ModelSpec spec = SmallGroupedSpec();
  spec.qk_rope_head_dim = spec.v_head_dim = 128;
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  Subject subject(spec);
  for (const ExpertParallelism experts : kExperts) subject.ExpectAgrees(2, experts, 150);
}

TEST(CudaDistributedTest, OneRankHasTheBitsOfOneDevice) {
  Subject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(30);
  const Result expected = subject.OnOneDevice(tokens);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  for (const ExpertParallelism experts : kExperts) {
    const Result result = subject.OnRanks(1, experts, tokens);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(SameBits(result.logits, expected.logits)) << Name(experts);
    EXPECT_EQ(result.kv, expected.kv) << Name(experts);
  }
}

TEST(CudaDistributedTest, TheSameEveryTime) {
  Subject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(70);
  const Result first = subject.OnRanks(2, ExpertParallelism::kSmall, tokens);
  const Result second = subject.OnRanks(2, ExpertParallelism::kSmall, tokens);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_TRUE(SameBits(second.logits, first.logits));
  EXPECT_EQ(second.kv, first.kv);
}

// The NaN row is not one that needs logits: its rank reports it.
TEST(CudaDistributedTest, NanInAnEmbeddingIsAnError) {
  Subject subject(Spec(), /*nan_token=*/7);
  const Result result = subject.OnRanks(2, ExpertParallelism::kSmall, std::vector<int32_t>{7, 1, 2, 3, 4});
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal) << result.status;
  EXPECT_NE(result.status.message().find("layer 1"), std::string_view::npos) << result.status;
}

TEST(CudaDistributedTest, ShapesThatRanksDoNotHave) {
  ModelSpec spec = Spec();
  EXPECT_TRUE(CheckRanksSupported(spec).ok());
  spec.hidden_size = 164;
  EXPECT_TRUE(CheckPrefillSupported(spec).ok());
  const absl::Status status = CheckRanksSupported(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("not of 164"), std::string_view::npos) << status;
}

}  // namespace
}  // namespace moestro
