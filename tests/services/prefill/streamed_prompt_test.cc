// The runner with a device: which prompts are streamed, and that nobody can tell by their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/device/host/host_device.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/stream/host_compute.h"
#include "services/prefill/streaming_device.h"
#include "tests/support/engine_node.h"

namespace moestro {
namespace {

absl::Status Never() { return absl::OkStatus(); }

class StreamedPromptTest : public testing::Test {
 protected:
  static PrefillJob Job(int tokens) {
    PrefillJob job;
    for (int i = 0; i < tokens; ++i) job.token_ids.push_back((i + 3) * 7 % 50);
    job.prompt_tokens = tokens;
    return job;
  }

  std::unique_ptr<StreamingDevice> Device(int64_t memory_bytes = 0) {
    PrefillConfig config;
    config.chunk_tokens = 16;
    config.mla_form = form_;
    config.stream.device = "host";
    config.stream.memory_bytes = memory_bytes;
    config.stream.dense_bytes = 1 << 20;
    config.stream.from_tokens = kFrom;
    config.stream.min_pass_tokens = 4;
    return StreamingDevice::Create(config, node_.segment(), *AvailableKernels().back(), node_.workers()).value();
  }

  struct Result {
    std::optional<SampledToken> token;
    std::vector<int64_t> progress;
    std::optional<StreamCounters> streamed;
  };
  Result Run(StreamingDevice* device, const PrefillJob& job, const KvLease& lease, const std::string& trace_file = "") {
    PrefillRunner runner(
        node_.engine(), form_,
        {.prefill = device == nullptr ? nullptr : &device->prefill(), .from_tokens = kFrom, .trace_file = trace_file});
    const auto writer = node_.Writer(lease);
    Result result;
    const PrefillEvents events{.on_progress = [&](int64_t done, int64_t) { result.progress.push_back(done); },
                               .on_streamed = [&](const StreamCounters& run) { result.streamed = run; }};
    const auto token = runner.Run(job, *writer, Never, events);
    EXPECT_TRUE(token.ok()) << token.status();
    if (token.ok()) result.token = *token;
    EXPECT_EQ(node_.pool().ValidTokens(lease), std::ssize(job.token_ids));
    return result;
  }
  Result Run(StreamingDevice* device, const PrefillJob& job) { return Run(device, job, *node_.pool().Reserve(100)); }

  static constexpr int64_t kFrom = 20;
  EngineNode node_{/*max_rows=*/16};
  MlaFormPolicy form_{.name = "absorbed"};
};

TEST_F(StreamedPromptTest, TheSameTokenWithProgressForEveryLayer) {
  const auto device = Device();
  ASSERT_NE(device, nullptr);
  const Result expected = Run(nullptr, Job(60));
  const Result streamed = Run(device.get(), Job(60));
  ASSERT_TRUE(streamed.streamed.has_value());
  EXPECT_GT(streamed.streamed->streamed_bytes, 0);
  EXPECT_EQ(streamed.token->id, expected.token->id);
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
  EXPECT_THAT(streamed.progress, testing::ElementsAre(20, 40, 60));
  EXPECT_FALSE(expected.streamed.has_value());
}

TEST_F(StreamedPromptTest, OnlyPromptsThatAreLongEnoughAndNeverScores) {
  const auto device = Device();
  EXPECT_FALSE(Run(device.get(), Job(19)).streamed.has_value());
  EXPECT_TRUE(Run(device.get(), Job(20)).streamed.has_value());
  PrefillJob job = Job(40);
  job.score_top = 1;
  EXPECT_FALSE(Run(device.get(), job).streamed.has_value());
}

TEST_F(StreamedPromptTest, ARestThatWasBegunElsewhere) {
  const auto device = Device();
  const Result expected = Run(nullptr, Job(60));
  const KvLease lease = *node_.pool().Reserve(100);
  Run(nullptr, Job(25), lease);
  const Result streamed = Run(device.get(), Job(60), lease);
  EXPECT_TRUE(streamed.streamed.has_value());
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
  // Now all but the last token is there.
  EXPECT_FALSE(Run(device.get(), Job(60), lease).streamed.has_value());
}

TEST_F(StreamedPromptTest, TokensAfterThePromptAreComputedAsDecodeDoes) {
  form_.name = "unabsorbed";
  const auto device = Device();
  PrefillJob job = Job(60);
  job.prompt_tokens = 45;
  const Result expected = Run(nullptr, job);
  const Result streamed = Run(device.get(), job);
  EXPECT_TRUE(streamed.streamed.has_value());
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
}

TEST_F(StreamedPromptTest, ADeviceThatIsTooSmallIsNotUsed) { EXPECT_EQ(Device(1 << 20), nullptr); }

TEST_F(StreamedPromptTest, APromptThatIsTooLongForTheDeviceIsComputedWithoutIt) {
  // Room for 24 rows at a time, which may not be cut.
  const ModelWeights weights = BindWeights(node_.segment()).value();
  HostCompute compute(node_.spec(), weights, *AvailableKernels().back(), node_.workers(), 16);
  const auto host = device::NewHostDevice({.memory_bytes = int64_t{1} << 30});
  const int64_t slots = 2 * SlotBytes(ListModules(node_.spec(), weights, MlaForm::kAbsorbed, 1 << 18));
  StreamPrefill prefill(*host, node_.spec(), weights, compute,
                        {.device_bytes = (1 << 20) + slots + compute.ActivationBytes(24), .dense_bytes = 1 << 20});
  PrefillRunner runner(node_.engine(), form_, {.prefill = &prefill, .from_tokens = 1, .trace_file = ""});
  int streamed = 0;
  const PrefillEvents events{.on_progress = {}, .on_streamed = [&](const StreamCounters&) { ++streamed; }};
  for (const int tokens : {24, 40}) {
    const auto writer = node_.Writer(*node_.pool().Reserve(100));
    EXPECT_TRUE(runner.Run(Job(tokens), *writer, Never, events).ok());
    EXPECT_EQ(streamed, 1);
  }
}

TEST_F(StreamedPromptTest, WritesTheTimeline) {
  const std::string path = testing::TempDir() + "streamed_prompt_trace.json";
  const auto device = Device();
  Run(device.get(), Job(60), *node_.pool().Reserve(100), path);
  std::FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  std::remove(path.c_str());
  Run(device.get(), Job(60), *node_.pool().Reserve(100), "/no/such/folder/trace.json");  // said in the log only
}

}  // namespace
}  // namespace moestro
