#include "common/roofline/policy_search.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/checkpoint/config.h"

namespace moestro::roofline {
namespace {

constexpr double kGiB = 1 << 30;

// The machines of MoE-Lightning's published program and logs. The host's memory is from the log of setting S2.
Machine L4() {
  return {.name = "L4",
          .device = {.memory_bytes = 24 * kGiB, .memory_bytes_per_second = 285 * kGiB, .flops_per_second = 104e12},
          .host = {.memory_bytes = 197880360960, .memory_bytes_per_second = 100 * kGiB, .flops_per_second = 1.6e12},
          .devices = 1,
          .link_bytes_per_second = 16 * kGiB};
}
Machine T4(int64_t devices, double host_bytes) {
  const auto count = static_cast<double>(devices);
  return {.name = "T4",
          .device = {.memory_bytes = count * 15 * kGiB,
                     .memory_bytes_per_second = count * 300 * kGiB,
                     .flops_per_second = count * 65e12},
          .host = {.memory_bytes = host_bytes, .memory_bytes_per_second = 100 * kGiB, .flops_per_second = 0.8e12},
          .devices = devices,
          .link_bytes_per_second = 16 * kGiB};
}

// The published run on an L4: all digits of its log.
TEST(PolicySearch, TheLoggedRunOfMoeLightning) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16);
  const std::optional<PolicyChoice> choice = SearchPolicy(model, L4(), {.prompt = 77, .generate = 32});
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->policy.micro_batch, 324);
  EXPECT_EQ(choice->policy.micro_batches, 14);
  EXPECT_FALSE(choice->policy.device_attention);
  EXPECT_TRUE(choice->policy.device_experts);
  EXPECT_NEAR(choice->policy.resident_weights, 0.055884688, 5e-10);
  EXPECT_NEAR(choice->cost.step_seconds, 4.957, 5e-4);
  EXPECT_NEAR(choice->cost.layer_seconds, 0.1549, 5e-5);
  EXPECT_NEAR(choice->cost.tokens_per_second, 944.66, 5e-3);
  EXPECT_NEAR(choice->cost.device_bytes / kGiB, 20.640, 5e-4);
  EXPECT_NEAR(choice->cost.host_bytes / kGiB, 147.282, 5e-4);
}

struct Row {
  const char* model;
  Machine machine;
  double prompt, generate;
  int64_t micro_batch, micro_batches;
};

// One of each published setting, and the models with several devices.
TEST(PolicySearch, PublishedBatches) {
  const double small = 197880360960, large = 416 * kGiB;
  const std::vector<Row> rows = {{"mixtral-8x7b", T4(1, small), 418, 128, 36, 14},
                                 {"mixtral-8x7b", T4(1, small), 77, 64, 164, 19},
                                 {"mixtral-8x7b", L4(), 256, 50, 100, 15},
                                 {"mixtral-8x7b", L4(), 77, 64, 228, 16},
                                 {"mixtral-8x22b", T4(2, large), 417, 32, 36, 7}};
  for (const Row& row : rows) {
    const weights::ModelSpec spec = checkpoint::PublishedModel(row.model);
    const std::optional<PolicyChoice> choice =
        SearchPolicy(BatchModel(spec, DType::kBF16), row.machine, {.prompt = row.prompt, .generate = row.generate});
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->policy.micro_batch, row.micro_batch) << row.model << " " << row.prompt << " " << row.generate;
    EXPECT_EQ(choice->policy.micro_batches, row.micro_batches) << row.model << " " << row.prompt << " " << row.generate;
  }
}

// Fig. 10: two A100; the host is k times (200 GB, 100 GB/s, 1.6 TFLOP/s).
struct Moves {
  double link_gib = 0;
  double generate = 0;
  int first_k = 0;             // with attention on the host
  double weights_on_host = 0;  // before that; none afterwards
};
TEST(PolicySearch, AttentionMovesToAFasterHost) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16, PrefillRows::kMicroBatches);
  const std::vector<Moves> all = {
      {100, 32, 8, 0},  {200, 32, 8, 0.068},  {300, 32, 9, 0.068},  {400, 32, 9, 0.068},   {500, 32, 9, 0.139},
      {100, 128, 8, 0}, {200, 128, 9, 0.041}, {300, 128, 9, 0.041}, {400, 128, 10, 0.116}, {500, 128, 10, 0.116}};
  for (const Moves& moves : all) {
    for (int k = 1; k <= 10; ++k) {
      const Machine machine = {
          .name = "2x A100",
          .device = {.memory_bytes = 160 * kGiB, .memory_bytes_per_second = 4000 * kGiB, .flops_per_second = 600e12},
          .host = {.memory_bytes = k * 200 * kGiB,
                   .memory_bytes_per_second = k * 100 * kGiB,
                   .flops_per_second = k * 1.6e12},
          .devices = 1,
          .link_bytes_per_second = moves.link_gib * kGiB};
      const std::optional<PolicyChoice> choice =
          SearchPolicy(model, machine, {.prompt = 512, .generate = moves.generate});
      ASSERT_TRUE(choice.has_value());
      const BatchPolicy& policy = choice->policy;
      EXPECT_TRUE(policy.device_experts);
      EXPECT_EQ(!policy.device_attention, k >= moves.first_k) << moves.link_gib << " " << moves.generate << " " << k;
      EXPECT_NEAR(1 - policy.resident_weights, policy.device_attention ? moves.weights_on_host : 0, 6e-4);
      EXPECT_EQ(policy.resident_cache, policy.device_attention ? 1 : 0);
    }
  }
}

// What is chosen fits, and nothing else of the same shape needs the link less.
TEST(PolicySearch, SharesFillTheMemories) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16);
  const BatchWorkload workload = {.prompt = 256, .generate = 50};
  const Machine machine = L4();
  const auto fits = [&](const PolicyCost& cost) {
    return cost.device_bytes <= kDeviceMemoryShare * machine.device.memory_bytes * (1 + 1e-12) &&
           cost.host_bytes <= kHostMemoryShare * machine.host.memory_bytes * (1 + 1e-12);
  };
  for (const bool device_attention : {false, true}) {
    const std::optional<BatchPolicy> best = model.WithBestShares(
        machine, workload, {.micro_batch = 4, .micro_batches = 4, .device_attention = device_attention});
    ASSERT_TRUE(best.has_value());
    const PolicyCost cost = model.CostOf(machine, workload, *best);
    EXPECT_TRUE(fits(cost));
    for (double weights = 0; weights <= 1; weights += 0.01) {
      for (double cache = 0; cache <= (device_attention ? 1 : 0); cache += 0.01) {
        BatchPolicy other = *best;
        other.resident_weights = weights;
        other.resident_cache = cache;
        const PolicyCost other_cost = model.CostOf(machine, workload, other);
        if (!fits(other_cost)) continue;
        EXPECT_GE(other_cost.link_seconds, cost.link_seconds * (1 - 1e-12));
      }
    }
  }
}

// A bound ends the search where memory does not.
TEST(PolicySearch, SmallModels) {
  weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  spec.num_layers = 4;
  spec.hidden_size = spec.moe_intermediate_size = 64;
  const std::optional<PolicyChoice> choice =
      SearchPolicy(BatchModel(spec, DType::kBF16), L4(), {.prompt = 8, .generate = 8});
  ASSERT_TRUE(choice.has_value());
  EXPECT_LE(choice->policy.requests(), kMostRequests);
}

// Mixtral: 2.8 GB of experts in a layer, 4 KB of cache for a position.
TEST(BatchModel, CostsOfALayer) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16);
  const Machine machine = L4();
  const double experts = 8 * 3 * 2.0 * 4096 * 14336, position = 4096, link = 16 * kGiB, host = 100 * kGiB,
               device = 285 * kGiB;
  const BatchWorkload workload = {.prompt = 100, .generate = 40};
  BatchPolicy policy = {.micro_batch = 10, .micro_batches = 20, .resident_weights = 0.25};
  const double rows = 2.0 * 10 * (4096 + 14336), queries = 2 * 2.0 * 10 * 4096;
  const PolicyCost streamed = model.CostOf(machine, workload, policy);
  EXPECT_DOUBLE_EQ(streamed.link_seconds, 0.75 * experts / link);
  EXPECT_DOUBLE_EQ(streamed.device_seconds, 20 * (experts + rows) / device);
  EXPECT_DOUBLE_EQ(streamed.host_seconds, 20 * (queries + 10 * 140 * position) / host);
  EXPECT_EQ(streamed.layer_seconds, streamed.device_seconds);
  EXPECT_EQ(streamed.step_seconds, 32 * streamed.layer_seconds);
  EXPECT_DOUBLE_EQ(streamed.tokens_per_second, 200 * 40 / (39 * streamed.step_seconds));
  // Half of the cache comes over the link for attention on the device.
  policy.device_attention = true;
  policy.resident_cache = 0.5;
  const PolicyCost copied = model.CostOf(machine, workload, policy);
  EXPECT_DOUBLE_EQ(copied.link_seconds, (0.75 * experts + 0.5 * 200 * 120 * position) / link);
  EXPECT_DOUBLE_EQ(copied.device_seconds, 20 * (experts + rows + queries + 10 * 140 * position) / device);
  EXPECT_EQ(copied.host_seconds, 0);
  // Experts on the host need no link.
  const PolicyCost on_host =
      model.CostOf(machine, workload, {.micro_batch = 10, .micro_batches = 20, .device_experts = false});
  EXPECT_EQ(on_host.link_seconds, 0);
  EXPECT_DOUBLE_EQ(on_host.host_seconds, 20 * (experts + rows + queries + 10 * 140 * position) / host);
}

// The first three layers of DeepSeek-V3 have attention only.
TEST(BatchModel, DenseLayers) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const BatchModel model(spec, DType::kF8E4M3);
  const PolicyCost cost = model.CostOf(L4(), {.prompt = 100, .generate = 40}, {.micro_batch = 10, .micro_batches = 20});
  EXPECT_DOUBLE_EQ(cost.step_seconds, 58 * cost.layer_seconds + 3 * cost.host_seconds);
}

// Every second layer of gpt-oss sees 128 positions.
TEST(BatchModel, Windows) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("gpt-oss-20b");
  const BatchModel model(spec, DType::kBF16);
  const PolicyCost cost =
      model.CostOf(L4(), {.prompt = 1000, .generate = 1000}, {.micro_batch = 10, .micro_batches = 20});
  const double queries = 2 * 2.0 * 10 * 64 * 64, position = 2 * 2.0 * 8 * 64;
  EXPECT_DOUBLE_EQ(cost.host_seconds, 20 * (queries + 10 * (2000 + 128) / 2 * position) / (100 * kGiB));
}

TEST(BatchModel, PrefillSeconds) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16);
  Machine machine = L4();
  const BatchWorkload workload = {.prompt = 100, .generate = 2};
  const BatchPolicy policy = {.micro_batch = 10, .micro_batches = 20, .resident_weights = 0.25};
  // 12.6 billion parameters multiply a row: all active ones but those of embedding and head.
  const double operations = 2 * 200 * 100 * 32 * (2.5 * 4096 * 4096 + 2 * 3.0 * 4096 * 14336);
  EXPECT_DOUBLE_EQ(model.PrefillSeconds(machine, workload, policy), operations / 104e12);
  machine.link_bytes_per_second = 1e9;
  EXPECT_DOUBLE_EQ(model.PrefillSeconds(machine, workload, policy), 0.75 * 32 * 8 * 3 * 2.0 * 4096 * 14336 / 1e9);
  machine.devices = 0;
  EXPECT_DOUBLE_EQ(model.PrefillSeconds(machine, workload, policy), operations / 1.6e12);
}

// Without a device, all is on the host, and one micro-batch reads the weights once.
TEST(PolicySearch, AHostAlone) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const BatchModel model(spec, DType::kBF16);
  Machine machine;
  machine.host = L4().host;
  machine.devices = 0;
  const BatchWorkload workload = {.prompt = 77, .generate = 32};
  const std::optional<PolicyChoice> choice = SearchPolicy(model, machine, workload);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->policy.micro_batches, 1);
  EXPECT_FALSE(choice->policy.device_experts || choice->policy.device_attention);
  EXPECT_EQ(choice->cost.link_seconds + choice->cost.device_seconds, 0);
  EXPECT_EQ(choice->cost.layer_seconds, choice->cost.host_seconds);
  // All weights but router, head and embedding, and what requests have.
  const double weights = 2.0 * 32 * (3.0 * 8 * 4096 * 14336 + 2.5 * 4096 * 4096);
  const double of_a_request = 4.0 * 109 * 1024 * 32 + 2.0 * 77 * 4096;
  EXPECT_DOUBLE_EQ(choice->cost.host_bytes, weights + static_cast<double>(choice->policy.requests()) * of_a_request);
  EXPECT_LE(choice->cost.host_bytes, kHostMemoryShare * machine.host.memory_bytes);
}

TEST(PolicySearch, NothingFits) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  Machine machine = L4();
  machine.host.memory_bytes = machine.device.memory_bytes = kGiB;
  EXPECT_FALSE(SearchPolicy(BatchModel(spec, DType::kBF16), machine, {.prompt = 77, .generate = 32}).has_value());
}

}  // namespace
}  // namespace moestro::roofline
