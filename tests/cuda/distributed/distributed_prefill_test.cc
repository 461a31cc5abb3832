// Prompts shared by ranks on GPUs, or on the model of one: against the engine on the CPU, and one rank against one
// device. With fewer GPUs than ranks, ranks share them.
#include "services/prefill/distributed/distributed_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "common/collective/peer/peer_communicator.h"
#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_prefill.h"
#include "common/engine/cuda/cuda_rank_kernels.h"
#include "tests/common/model/engine_harness.h"
#include "tests/cuda/near.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {

using roofline::ExpertParallelism;

namespace {

constexpr ExpertParallelism kExperts[] = {ExpertParallelism::kSmall, ExpertParallelism::kStandard};
constexpr MemoryLimits kLimits{.dense_bytes = 8 << 20, .ring_slots = 2};
constexpr double kPatience = 600;  // the model of a GPU is slow

const char* Name(ExpertParallelism experts) { return experts == ExpertParallelism::kSmall ? "SmallEP" : "standard EP"; }

// A dense layer, then a layer whose experts depend on the tokens. Nothing follows it, so another choice would change
// only the row's own logits.
weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  return spec;
}

struct RanksResult {
  absl::Status status;
  model::Logits logits;
  std::vector<uint16_t> kv;
  int64_t spare_bytes = std::numeric_limits<int64_t>::max();  // of the rank's device that has least
};

using RankGroupMaker = std::unique_ptr<RankGroup> (*)(int ranks, const collective::SharedOptions& options);

// A model, and its prompts on ranks of GPUs.
class RanksSubject {
 public:
  explicit RanksSubject(const weights::ModelSpec& model, int32_t nan_token = -1, std::optional<DType> type = {})
      : model_(MakeSyntheticSegment(
            {.spec = model, .type = type, .decisive_biases = type.has_value(), .nan_token = nan_token})),
        coded_(type == DType::kI8),
        weights_(model::BindWeights(*model_.segment).value()) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }
  std::vector<int32_t> Tokens(int64_t count) const { return model::RandomTokens(count, spec().token_count, 3); }

  // Results of the tokens from `cached` on; the engine on the CPU has computed the earlier ones.
  RanksResult OnRanks(int ranks, ExpertParallelism experts, std::span<const int32_t> tokens, int64_t cached = 0,
                      int64_t least_tile_rows = engine::kCudaTileRows, int64_t device_bytes = 0) {
    return OnRanks(std::vector<int64_t>(static_cast<size_t>(ranks), 1), experts, tokens, cached, least_tile_rows,
                   device_bytes);
  }
  // A rank for each share.
  RanksResult OnRanks(const std::vector<int64_t>& shares, ExpertParallelism experts, std::span<const int32_t> tokens,
                      int64_t cached = 0, int64_t least_tile_rows = engine::kCudaTileRows, int64_t device_bytes = 0) {
    std::vector<std::unique_ptr<device::Device>> devices;
    std::vector<std::unique_ptr<engine::CudaRankKernels>> kernels;
    std::vector<RankSetup> setups;
    for (const int64_t share : shares) {
      devices.push_back(Open(static_cast<int>(devices.size())));
      kernels.push_back(std::make_unique<engine::CudaRankKernels>(
          *devices.back(), spec(), weights_, Int8Activations::kPublished, /*fp8_inputs=*/false, least_tile_rows));
      setups.push_back({.device = devices.back().get(), .kernels = kernels.back().get(), .share = share});
    }
    DistributedPrefill prefill(
        spec(), weights_, setups,
        {.experts = experts,
         .limits = {.device_bytes = device_bytes, .dense_bytes = kLimits.dense_bytes, .ring_slots = kLimits.ring_slots},
         .new_group = [this](int n) { return new_group_(n, {.timeout_seconds = kPatience}); },
         .patience_seconds = kPatience});
    RanksResult result = Run(prefill, tokens, cached);
    for (const RankReport& report : prefill.reports()) {
      result.spare_bytes = std::min(result.spare_bytes, report.plan.spare_bytes);
    }
    for (const auto& device : devices) EXPECT_EQ(device->memory_used(), 0);
    return result;
  }

  // Whether GPUs of so many ranks copy from each other's memory; from now on they do.
  absl::Status UsePeers(int ranks) {
    std::vector<std::unique_ptr<device::Device>> devices;
    std::vector<device::Device*> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(devices.emplace_back(Open(rank)).get());
    new_group_ = NewPeerRankGroup;
    const absl::Status peers = collective::CheckPeers(all);
    EXPECT_TRUE(peers.ok() || all.front()->name() != all.back()->name()) << "ranks of one GPU: " << peers;
    return peers;
  }

  RanksResult OnOneDevice(std::span<const int32_t> tokens) {
    const auto device = Open(0);
    engine::CudaPrefill compute(*device, spec(), weights_);
    StreamPrefill prefill(*device, spec(), weights_, compute, kLimits);
    return Run(prefill, tokens, 0);
  }

  // Keys, values and the last rows' logits within the tolerance between devices.
  void ExpectAgrees(int ranks, ExpertParallelism experts, int64_t count, int64_t cached = 0) {
    ExpectAgrees(std::vector<int64_t>(static_cast<size_t>(ranks), 1), experts, count, cached);
  }
  void ExpectAgrees(const std::vector<int64_t>& shares, ExpertParallelism experts, int64_t count, int64_t cached = 0) {
    SCOPED_TRACE(testing::Message() << Name(experts) << ", " << count << " tokens after " << cached << ", shares "
                                    << testing::PrintToString(shares));
    const std::vector<int32_t> tokens = Tokens(count);
    const model::TestSequence expected(spec(), count);
    const model::Logits expected_logits =
        model::RunPrompt(*engine_, expected, tokens, kChunk, model::MlaForm::kUnabsorbed);
    const RanksResult result = OnRanks(shares, experts, tokens, cached);
    ASSERT_TRUE(result.status.ok()) << result.status;
    ASSERT_EQ(result.logits.size(), static_cast<size_t>(std::min(kLogits, count - cached)));
    ExpectNear(spec(), result.logits, expected_logits, coded_);
    ExpectNear(spec(), result.kv, expected.Contents(count), coded_);
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
  RanksResult Run(Prefill& prefill, std::span<const int32_t> tokens, int64_t cached) {
    const model::TestSequence sequence(spec(), std::ssize(tokens));
    if (cached > 0) model::RunPrompt(*engine_, sequence, tokens.first(cached), kChunk, model::MlaForm::kUnabsorbed);
    std::vector<model::EngineRow> rows = model::MakeRows(tokens.subspan(cached), cached);
    for (int64_t i = 0; i < std::ssize(rows); ++i) rows[i].needs_logits = i + kLogits >= std::ssize(rows);
    const kv::KvPages pages[] = {sequence.pages()};
    RanksResult result;
    result.status =
        prefill.Run(rows, pages, model::MlaForm::kUnabsorbed, model::NeverInterrupted, {},
                    [&](int64_t, std::span<const float> row) { result.logits.emplace_back(row.begin(), row.end()); });
    result.kv = sequence.Contents(std::ssize(tokens));
    return result;
  }

  const SyntheticSegment model_;
  const bool coded_;
  const model::ModelWeights weights_;
  WorkerPool pool_{2};
  RankGroupMaker new_group_ = NewInProcessRankGroup;
  const std::unique_ptr<model::Engine> engine_ =
      model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = kChunk}).value();
};

// Blocks that do not divide evenly, an incomplete last one, a stripe without rows, a rank that has only experts.
TEST(CudaDistributedTest, TwoRanksAgreeWithTheEngine) {
  RanksSubject subject(Spec());
  for (const ExpertParallelism experts : kExperts) {
    for (const int64_t count : {5, 150}) subject.ExpectAgrees(2, experts, count);
  }
}

TEST(CudaDistributedTest, AfterWhatIsCached) {
  RanksSubject subject(Spec());
  subject.ExpectAgrees(2, ExpertParallelism::kSmall, 140, /*cached=*/100);
}

// Down to a rank without rows and experts. A small rank attends to a large one's part in pieces of its own size.
TEST(CudaDistributedTest, UnequalShares) {
  RanksSubject subject(Spec());
  subject.ExpectAgrees({5, 1}, ExpertParallelism::kSmall, 340);
  subject.ExpectAgrees({1, 3, 2}, ExpertParallelism::kSmall, 200, /*cached=*/100);
  subject.ExpectAgrees({2, 1}, ExpertParallelism::kStandard, 150);
  subject.ExpectAgrees({1, 1000}, ExpertParallelism::kStandard, 70);
}

TEST(CudaDistributedTest, ThreeRanksManyHeadsNoSharedExpertNoQueryRank) {
  weights::ModelSpec spec = Spec();
  spec.q_lora_rank = 0;
  spec.num_shared_experts = 0;
  spec.num_heads = engine::kCudaHeads + 3;
  RanksSubject subject(spec);
  subject.ExpectAgrees(3, ExpertParallelism::kSmall, 70);
}

TEST(CudaDistributedTest, SharedExpertBehindAGate) {
  weights::ModelSpec spec = Spec();
  spec.shared_expert_width = 184;
  spec.shared_expert_gate = 1;
  RanksSubject subject(spec);
  for (const ExpertParallelism experts : kExperts) subject.ExpectAgrees(2, experts, 70);
}

// All experts are chosen: without biases no other choice is certain.
TEST(CudaDistributedTest, SharesOfAllExpertsAndTwoSharedOnes) {
  weights::ModelSpec spec = Spec();
  spec.q_lora_rank = 0;
  spec.softmax_router = 1;
  spec.largest_of_group = 1;
  spec.experts_topk_groups = spec.num_expert_groups;
  spec.experts_per_token = spec.num_experts;
  spec.norm_topk_prob = 0;
  spec.num_shared_experts = 2;
  RanksSubject subject(spec);
  for (const ExpertParallelism experts : kExperts) subject.ExpectAgrees(2, experts, 70);
}

TEST(CudaDistributedTest, GroupedQueries) {
  weights::ModelSpec spec = SmallGroupedSpec();
  spec.qk_rope_head_dim = spec.v_head_dim = 128;
  spec.num_experts = spec.experts_per_token;  // without biases no other choice is certain
  spec.num_layers = 2;
  RanksSubject subject(spec);
  for (const ExpertParallelism experts : kExperts) subject.ExpectAgrees(2, experts, 150);
}

TEST(CudaDistributedTest, Int8) {
  RanksSubject subject(Spec(), /*nan_token=*/-1, DType::kI8);
  for (const ExpertParallelism experts : kExperts) subject.ExpectAgrees(2, experts, 70);
}

TEST(CudaDistributedTest, FormsOfGroupedQueries) {
  for (const GroupedForm& form : GroupedForms(128)) {
    SCOPED_TRACE(form.name);
    RanksSubject(form.spec).ExpectAgrees(2, ExpertParallelism::kSmall, 150);
  }
}

TEST(CudaDistributedTest, OneRankHasTheBitsOfOneDevice) {
  RanksSubject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(30);
  const RanksResult expected = subject.OnOneDevice(tokens);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  for (const ExpertParallelism experts : kExperts) {
    const RanksResult result = subject.OnRanks(1, experts, tokens);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(model::SameBits(result.logits, expected.logits)) << Name(experts);
    EXPECT_EQ(result.kv, expected.kv) << Name(experts);
  }
}

// Tiles of 16 rows, and those that the memory makes longer, have the bits of one tile.
TEST(CudaDistributedTest, ShortAndLongTilesHaveTheSameBits) {
  RanksSubject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(100);
  for (const ExpertParallelism experts : kExperts) {
    const RanksResult expected = subject.OnRanks(2, experts, tokens);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    constexpr int64_t kBytes = 512 << 20;
    const RanksResult longer = subject.OnRanks(2, experts, tokens, 0, 16, kBytes);
    const RanksResult shorter = subject.OnRanks(2, experts, tokens, 0, 16, kBytes - longer.spare_bytes);
    EXPECT_GT(longer.spare_bytes, 0);
    EXPECT_EQ(shorter.spare_bytes, 0);
    for (const RanksResult* result : {&longer, &shorter}) {
      ASSERT_TRUE(result->status.ok()) << result->status;
      EXPECT_TRUE(model::SameBits(result->logits, expected.logits)) << Name(experts);
      EXPECT_EQ(result->kv, expected.kv) << Name(experts);
    }
  }
}

TEST(CudaDistributedTest, LongerTilesTakeWhatMemoryIsSpare) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = Spec()});
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const auto device = device::OpenCudaDevice({.memory_bytes = int64_t{1} << 30}).value();
  engine::CudaRankKernels kernels(*device, Spec(), weights, Int8Activations::kPublished, /*fp8_inputs=*/false,
                                  /*least_tile_rows=*/16);
  const ZigZagSplit split(0, 100, ProportionalParts::Even(2));
  const std::vector<model::EngineRow> all = model::MakeRows(model::RandomTokens(100, Spec().token_count, 3), 0);
  const std::vector<model::EngineRow> rows = RankRows(all, split, 0);
  const auto used = [&](int64_t spare_bytes) {
    RankRun run;
    run.split = &split;
    run.rows = rows;
    run.spare_bytes = spare_bytes;
    EXPECT_TRUE(kernels.Begin(run.share()).ok());
    const int64_t bytes = device->memory_used();
    kernels.End();
    return bytes - kernels.ActivationBytes(run.share());
  };
  EXPECT_LE(used(0), 0);
  EXPECT_GT(used(64 << 20), 0);
  EXPECT_LE(used(64 << 20), 64 << 20);
}

// On one GPU, too: ranks that share it copy from its memory.
TEST(CudaDistributedTest, FromGpuToGpuAsThroughTheHost) {
  RanksSubject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(150);
  std::vector<RanksResult> expected;
  for (const ExpertParallelism experts : kExperts) expected.push_back(subject.OnRanks(2, experts, tokens, 100));
  if (const absl::Status peers = subject.UsePeers(2); !peers.ok()) GTEST_SKIP() << peers;
  for (size_t i = 0; i < expected.size(); ++i) {
    const RanksResult result = subject.OnRanks(2, kExperts[i], tokens, 100);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(model::SameBits(result.logits, expected[i].logits)) << Name(kExperts[i]);
    EXPECT_EQ(result.kv, expected[i].kv) << Name(kExperts[i]);
  }
}

TEST(CudaDistributedTest, TheSameEveryTime) {
  RanksSubject subject(Spec());
  const std::vector<int32_t> tokens = subject.Tokens(70);
  const RanksResult first = subject.OnRanks(2, ExpertParallelism::kSmall, tokens);
  const RanksResult second = subject.OnRanks(2, ExpertParallelism::kSmall, tokens);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_TRUE(model::SameBits(second.logits, first.logits));
  EXPECT_EQ(second.kv, first.kv);
  RecordProperty("bits", model::BitsOf(first.logits));
}

// The NaN row is not one that needs logits: its rank reports it.
TEST(CudaDistributedTest, NanInAnEmbeddingIsAnError) {
  RanksSubject subject(Spec(), /*nan_token=*/7);
  const RanksResult result = subject.OnRanks(2, ExpertParallelism::kSmall, std::vector<int32_t>{7, 1, 2, 3, 4});
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal) << result.status;
  EXPECT_NE(result.status.message().find("layer 1"), std::string_view::npos) << result.status;
}

TEST(CudaDistributedTest, ShapesThatRanksDoNotHave) {
  weights::ModelSpec spec = Spec();
  EXPECT_TRUE(engine::CheckRanksSupported(spec).ok());
  spec.hidden_size = 164;
  EXPECT_TRUE(engine::CheckPrefillSupported(spec).ok());
  const absl::Status status = engine::CheckRanksSupported(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("not of 164"), std::string_view::npos) << status;
}

}  // namespace
}  // namespace moestro::prefill
