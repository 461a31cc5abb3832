// Continuous batching on a device: what a sequence generates depends neither on the device, nor on its neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <vector>

#include "common/device/host/host_device.h"
#include "services/decode/overlap/split.h"
#include "tests/services/decode/decode_fixture.h"
#include "tests/services/decode/overlap/overlap_fixture.h"
#include "tests/support/faulty_device.h"

namespace moestro::decode {
namespace {

constexpr int kMaxBatch = 6;
constexpr int64_t kMaxChunk = 16;
constexpr int32_t kUnusedToken = 3;  // Prompt() has none of it

class HybridLoopTest : public ::testing::Test {
 protected:
  static std::vector<int32_t> Prompt(int i) {
    std::vector<int32_t> tokens;
    for (int j = 0; j < 5 + 7 * i; ++j) tokens.push_back(20 + (31 * i + 3 * j) % 150);
    return tokens;
  }
  std::shared_ptr<TokenStream> Start(const std::vector<int32_t>& prompt, int64_t max_tokens) {
    const auto lease = leases_.Reserve({.tokens = prompt, .max_tokens = 200, .arrival = ++arrivals_}).value();
    return loop_.Prompt(lease, {.max_tokens = max_tokens}).value();
  }
  DecodeOutcome Alone(const std::vector<int32_t>& prompt, int64_t max_tokens) {
    return RunAlone(reference_, prompt, max_tokens, {});
  }

  EngineNode reference_{256, kUnusedToken};
  EngineNode node_{kMaxBatch + kMaxChunk, kUnusedToken};
  const std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
  device::FaultyDevice device_{*host_};
  HostHybrid hybrid_{device_, node_.segment(), node_.workers(), kMaxBatch + kMaxChunk, SplitRuns};
  LeaseTable leases_{node_.pool(), 64};
  MetricsRegistry registry_{"decode"};
  DecodeMetrics metrics_{registry_};
  uint64_t arrivals_ = 0;
  DecodeLoop loop_{hybrid_.forward(),
                   node_.pool(),
                   leases_,
                   metrics_,
                   {.max_batch = kMaxBatch, .chunks = {.bound_seconds = 10, .max_rows = kMaxChunk}}};
};

TEST_F(HybridLoopTest, EveryStreamHasTheTokensThatItHasAlone) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < kMaxBatch + 2; ++i) streams.push_back(Start(Prompt(i), 10 + i));
  for (int i = 0; i < kMaxBatch + 2; ++i) {
    const DecodeOutcome outcome = Collect(*streams[static_cast<size_t>(i)]);
    const DecodeOutcome expected = Alone(Prompt(i), 10 + i);
    EXPECT_EQ(outcome.ids, expected.ids) << i;
    EXPECT_EQ(outcome.logprobs, expected.logprobs) << i;
  }
  EXPECT_GT(hybrid_.forward().overlapped_steps(), 0);
}

TEST_F(HybridLoopTest, CancellingAStreamLeavesTheOthersTokensUnchanged) {
  const DecodeOutcome expected = Alone(Prompt(1), 60);
  for (int cancelled_after = 1; cancelled_after <= 3; ++cancelled_after) {
    const auto neighbour = Start(Prompt(3), 150);
    const auto stream = Start(Prompt(1), 60);
    for (int i = 0; i < cancelled_after; ++i) {
      while (!std::holds_alternative<Token>(neighbour->Next(kHang).value())) {
      }
    }
    loop_.Remove(neighbour);
    const DecodeOutcome outcome = Collect(*stream);
    EXPECT_EQ(outcome.ids, expected.ids);
    EXPECT_EQ(outcome.logprobs, expected.logprobs);
    EXPECT_EQ(outcome.reason, FinishReason::kLength);
  }
}

TEST_F(HybridLoopTest, OneBadSequenceDoesNotHarmItsNeighbours) {
  const auto neighbour = Start(Prompt(1), 40);
  std::vector<int32_t> bad = Prompt(4);
  bad[20] = kUnusedToken;
  const DecodeOutcome failed = Collect(*Start(bad, 10));
  EXPECT_EQ(failed.error.code(), absl::StatusCode::kInternal) << failed.error;
  EXPECT_EQ(Collect(*neighbour).ids, Alone(Prompt(1), 40).ids);
  EXPECT_TRUE(loop_.failure().ok()) << loop_.failure();
}

// Nothing works on it any more, as on a GPU after a kernel's fault: requests end with what makes the router resume
// them.
TEST_F(HybridLoopTest, ADeviceThatIsLostEndsTheLoopAndItsRequestsWithUnavailable) {
  std::promise<void> both_started;
  device_.set_fault([&, started = both_started.get_future().share()](const std::string& operation) -> absl::Status {
    started.wait();
    const bool lost = hybrid_.forward().overlapped_steps() > 0;  // after a step of both
    if (lost && (operation == "launch" || operation == "stream")) return absl::InternalError("lost: " + operation);
    return absl::OkStatus();
  });
  const std::shared_ptr<TokenStream> streams[] = {Start(Prompt(0), 100), Start(Prompt(1), 100)};
  both_started.set_value();
  for (const auto& stream : streams) {
    const absl::Status error = Collect(*stream).error;
    EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
    EXPECT_THAT(error.message(), ::testing::HasSubstr("lost: launch"));
    loop_.Remove(stream);
  }
  EXPECT_EQ(loop_.failure().code(), absl::StatusCode::kUnavailable);
  const auto lease = leases_.Reserve({.tokens = Prompt(2), .max_tokens = 5, .arrival = ++arrivals_}).value();
  EXPECT_EQ(loop_.Prompt(lease, {.max_tokens = 5}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace moestro::decode
