// The runner with a device: which prompts are streamed, and that nobody can tell by their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/device/host/host_device.h"
#include "common/engine/host/host_prefill.h"
#include "common/model/head.h"
#include "common/platform/numa.h"
#include "services/prefill/prefill_backends.h"
#include "services/prefill/prefill_runner.h"
#include "tests/support/engine_node.h"
#include "tests/support/log_capture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {

using model::MlaForm;

namespace {

absl::Status NoCancel() { return absl::OkStatus(); }

class StreamedPromptTest : public testing::Test {
 protected:
  static PrefillJob Job(int tokens) {
    PrefillJob job;
    for (int i = 0; i < tokens; ++i) job.token_ids.push_back((i + 3) * 7 % 50);
    job.prompt_tokens = tokens;
    return job;
  }

  std::unique_ptr<PrefillBackends> Device(int64_t memory_bytes = 0, int64_t dense_bytes = 1 << 20) {
    PrefillConfig config;
    config.chunk_tokens = 16;
    config.mla_form = form_;
    config.stream.device = "host";
    config.stream.memory_bytes = memory_bytes;
    config.stream.dense_bytes = dense_bytes;
    config.stream.from_tokens = kFrom;
    config.stream.min_pass_tokens = 4;
    return PrefillBackends::Create(config, node_.shared_segment(), TestKernels(), node_.workers()).value();
  }

  // Device memory for passes of at most so many rows.
  int64_t BytesFor(int64_t rows) {
    const engine::HostPrefill compute(node_.spec(), weights_, TestKernels(), node_.workers(), 16);
    const int64_t slots = 2 * SlotBytes(engine::ListModules(node_.spec(), weights_, MlaForm::kAbsorbed, 1 << 18));
    return (1 << 20) + slots + compute.ActivationBytes(rows);
  }

  PrefillRunner Runner(PrefillBackends* device, const std::string& trace_file = "") {
    return {node_.engine(),
            node_.workers(),
            form_,
            {.prefill = [device] { return device == nullptr ? nullptr : device->prefill(); },
             .from_tokens = kFrom,
             .trace_file = trace_file}};
  }

  KvLease Reserve(int64_t capacity = 100) { return node_.pool().Reserve({.capacity = capacity}).value(); }

  struct Result {
    std::optional<Token> token;
    std::vector<int64_t> progress;
    std::optional<StreamCounters> streamed;
    bool fp8_inputs = false;
  };
  Result Run(PrefillBackends* device, const PrefillJob& job, const KvLease& lease, const std::string& trace_file = "") {
    PrefillRunner runner = Runner(device, trace_file);
    return Run(runner, job, lease);
  }
  Result Run(PrefillRunner& runner, const PrefillJob& job, const KvLease& lease) {
    const auto writer = node_.Writer(lease);
    Result result;
    const PrefillEvents events{.on_progress = [&](int64_t done, int64_t) { result.progress.push_back(done); },
                               .on_streamed = [&](const StreamCounters& run) { result.streamed = run; },
                               .on_fp8_inputs = [&] { result.fp8_inputs = true; }};
    const auto token = runner.Run(job, *writer, NoCancel, events);
    EXPECT_TRUE(token.ok()) << token.status();
    if (token.ok()) result.token = *token;
    EXPECT_EQ(node_.pool().ValidTokens(lease), std::ssize(job.token_ids));
    return result;
  }
  Result Run(PrefillBackends* device, const PrefillJob& job) {
    return Run(device, job, Reserve(std::ssize(job.token_ids)));
  }

  void CheckCachedPrefix();

  static constexpr int64_t kFrom = 20;
  // Two own threads, and one on each CPU of the machine (which here is also the process's) when the whole machine is
  // free.
  EngineNode node_{/*max_rows=*/16,
                   /*nan_token=*/-1,
                   /*page_count=*/64,
                   {.threads = 2, .domains = 1, .pin = true, .lent_cpus = AllowedCpus()}};
  const model::ModelWeights weights_ = model::BindWeights(node_.segment()).value();
  MlaFormPolicy form_{.choice = MlaFormChoice::kAbsorbed};
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

// Whatever the length. A way that is not there is not taken.
TEST_F(StreamedPromptTest, TheWayThatTheRouterSays) {
  const auto device = Device();
  const auto job = [](int tokens, PromptWay way) {
    PrefillJob asked = Job(tokens);
    asked.way = way;
    return asked;
  };
  const int less = static_cast<int>(kFrom) - 5, more = static_cast<int>(kFrom) + 5;
  EXPECT_FALSE(Run(device.get(), job(more, PromptWay::kInPlace)).streamed.has_value());
  EXPECT_TRUE(Run(device.get(), job(less, PromptWay::kStreamed)).streamed.has_value());
  EXPECT_FALSE(Run(nullptr, job(less, PromptWay::kStreamed)).streamed.has_value());
  EXPECT_TRUE(Run(device.get(), Job(more)).streamed.has_value());
  EXPECT_FALSE(Run(device.get(), Job(less)).streamed.has_value());
}

TEST_F(StreamedPromptTest, TellsOfInputsInFp8) {
  CpuKernels rounding = TestKernels();
  rounding.fp8_activations = true;
  const auto rounds = model::Engine::Create(node_.segment(), rounding, node_.workers(), {.max_rows = 16});
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  const auto device = Device();
  for (const bool in_place : {false, true}) {
    for (const bool streamed : {false, true}) {
      PrefillRunner runner(in_place ? **rounds : node_.engine(), node_.workers(), form_,
                           {.prefill = [&] { return device->prefill(); },
                            .from_tokens = kFrom,
                            .trace_file = "",
                            .fp8_inputs = [&] { return streamed; }});
      EXPECT_EQ(Run(runner, Job(static_cast<int>(kFrom) - 1), Reserve()).fp8_inputs, in_place);
      EXPECT_EQ(Run(runner, Job(static_cast<int>(kFrom)), Reserve()).fp8_inputs, streamed);
    }
  }
  EXPECT_FALSE(Run(device.get(), Job(60)).fp8_inputs);
}

TEST_F(StreamedPromptTest, MeasuresWhatPromptsTake) {
  const auto device = Device();
  const auto costs = device->MeasureCosts();
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), 2u);
  for (const PromptCost& cost : *costs) {
    EXPECT_EQ(cost.way, PromptWay::kStreamed);
    EXPECT_TRUE(IsPlausible(cost));
    EXPECT_EQ(cost.points.back().tokens, node_.spec().max_position_embeddings);
  }
  EXPECT_EQ(Run(device.get(), Job(60)).token->id, Run(nullptr, Job(60)).token->id) << "and nothing is left of it";
}

TEST_F(StreamedPromptTest, RenewsItsLeaseWithEveryLayer) {
  const KvLease lease = Reserve();
  const uint32_t before = node_.pool().Renewals(lease);
  Run(Device().get(), Job(60), lease);
  EXPECT_EQ(node_.pool().Renewals(lease), before + node_.spec().num_layers);
}

// A device that does not get any further, until the prompt is given up.
class HangingDevice final : public PromptPrefill {
 public:
  MlaForm FormFor(MlaForm wanted) const override { return wanted; }
  absl::Status CheckFits(IndexRange, MlaForm) override { return absl::OkStatus(); }
  absl::Status Run(std::span<const model::EngineRow>, std::span<const kv::KvPages>, MlaForm,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents&,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    while (true) MOE_RETURN_IF_ERROR(interrupted());
  }
  StreamCounters run_counters() const override { return {}; }
  absl::Status WriteTrace(const std::string&) const override { return absl::OkStatus(); }
};

TEST_F(StreamedPromptTest, ADeviceThatHangsDoesNotRenewTheLease) {
  HangingDevice device;
  PrefillRunner runner(node_.engine(), node_.workers(), form_,
                       {.prefill = [&] { return &device; }, .from_tokens = 1, .trace_file = ""});
  const KvLease lease = Reserve();
  const uint32_t before = node_.pool().Renewals(lease);
  int asked = 0;
  const auto give_up = [&] { return ++asked >= 100 ? absl::CancelledError("given up") : absl::OkStatus(); };
  EXPECT_FALSE(runner.Run(Job(60), *node_.Writer(lease), give_up, {}).ok());
  EXPECT_EQ(node_.pool().Renewals(lease), before);
}

TEST_F(StreamedPromptTest, OnlyPromptsThatAreLongEnoughAndNeverScores) {
  const auto device = Device();
  EXPECT_FALSE(Run(device.get(), Job(19)).streamed.has_value());
  EXPECT_TRUE(Run(device.get(), Job(20)).streamed.has_value());
  PrefillJob job = Job(40);
  job.score_top = 1;
  EXPECT_FALSE(Run(device.get(), job).streamed.has_value());
}

TEST_F(StreamedPromptTest, ScoresThatMustBeStreamedHaveTheSameBits) {
  constexpr int kTokens = 2 * model::kLogitRows + 12;
  for (const int64_t memory_bytes : {int64_t{0}, BytesFor(100)}) {  // in one pass and in two
    const auto device = Device(memory_bytes);
    const auto scores = [&](const PrefillJob& job) {
      PrefillRunner runner = Runner(device.get());
      const KvLease lease = Reserve(kTokens);
      const uint32_t renewals = node_.pool().Renewals(lease);
      std::vector<std::pair<int32_t, std::optional<float>>> all;
      bool streamed = false;
      const PrefillEvents events{.on_progress = {},
                                 .on_score = [&](ScoredToken score) { all.emplace_back(score.id, score.logprob); },
                                 .on_streamed = [&](const StreamCounters&) { streamed = true; }};
      const auto token = runner.Run(job, *node_.Writer(lease), NoCancel, events);
      EXPECT_TRUE(token.ok() && !token->has_value()) << token.status();
      EXPECT_EQ(streamed, job.way == PromptWay::kStreamed);
      // In place with every layer of a chunk, streamed with every layer of a pass, and every kLogitRows of the head.
      if (streamed) {
        EXPECT_GE(node_.pool().Renewals(lease), renewals + node_.spec().num_layers + kTokens / model::kLogitRows);
      }
      return all;
    };
    PrefillJob job = Job(kTokens);
    job.score_top = 0;
    const auto in_place = scores(job);
    job.way = PromptWay::kStreamed;
    job.way_required = true;
    ASSERT_EQ(std::ssize(in_place), kTokens);
    EXPECT_EQ(scores(job), in_place);
  }
}

TEST_F(StreamedPromptTest, ARestThatWasBegunElsewhere) {
  const auto device = Device();
  const Result expected = Run(nullptr, Job(60));
  const KvLease lease = Reserve();
  Run(nullptr, Job(25), lease);
  const Result streamed = Run(device.get(), Job(60), lease);
  EXPECT_TRUE(streamed.streamed.has_value());
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
  // Now all but the last token is there.
  EXPECT_FALSE(Run(device.get(), Job(60), lease).streamed.has_value());
}

TEST_F(StreamedPromptTest, TokensAfterThePromptAreComputedAsDecodeDoes) {
  form_.choice = MlaFormChoice::kUnabsorbed;
  const auto device = Device();
  PrefillJob job = Job(60);
  job.prompt_tokens = 45;
  const Result expected = Run(nullptr, job);
  const Result streamed = Run(device.get(), job);
  EXPECT_TRUE(streamed.streamed.has_value());
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
}

TEST_F(StreamedPromptTest, WholeMachineGivesTheSameBitsOnMoreThreads) {
  const auto device = Device();
  PrefillJob job = Job(60);
  const Result expected = Run(nullptr, job);
  for (const bool whole_machine : {false, true, true, false}) {
    job.whole_machine = whole_machine;
    const Result streamed = Run(device.get(), job);
    EXPECT_TRUE(streamed.streamed.has_value());
    EXPECT_EQ(node_.workers().active_threads(),
              whole_machine ? node_.workers().threads() : node_.workers().own_threads());
    EXPECT_EQ(streamed.token->logprob, expected.token->logprob);
  }
}

// A conversation's next turn, whose lease begins with pages that others read too.
void StreamedPromptTest::CheckCachedPrefix() {
  const auto device = Device(BytesFor(40));
  const PrefillJob first = Job(140);
  const PrefillJob next = Job(230);
  const Result expected = Run(nullptr, next);
  const KvLease turn = Reserve(140);
  Run(nullptr, first, turn);
  node_.pool().Cache(turn, first.token_ids);

  const auto reserve_next = [&] { return *node_.pool().Reserve({.tokens = next.token_ids, .capacity = 230}); };
  const KvLease lease = reserve_next();
  ASSERT_EQ(lease.cached_tokens, 128);
  const Result streamed = Run(device.get(), next, lease);
  ASSERT_TRUE(streamed.streamed.has_value());
  EXPECT_EQ(streamed.streamed->passes, 3);  // of the 102 new tokens
  EXPECT_EQ(streamed.progress.front(), 128 + 34 / 3);
  EXPECT_EQ(streamed.token->id, expected.token->id);
  EXPECT_EQ(streamed.token->logprob, expected.token->logprob);

  // A run that writes the prefix as well would put right what is wrong in there.
  uint16_t* const shared = node_.pool().Pages(turn).Token(/*layer=*/0, /*position=*/127);
  const uint16_t wrong = shared[0] ^ 1;
  shared[0] = wrong;
  EXPECT_TRUE(Run(device.get(), next, reserve_next()).streamed.has_value());
  EXPECT_EQ(shared[0], wrong);
}

TEST_F(StreamedPromptTest, ACachedPrefixIsReadAndNotWritten) { CheckCachedPrefix(); }

TEST_F(StreamedPromptTest, ACachedPrefixIsReadAndNotWrittenUnabsorbed) {
  form_.choice = MlaFormChoice::kUnabsorbed;
  CheckCachedPrefix();
}

TEST_F(StreamedPromptTest, ARevokedLeaseAborts) {
  const auto device = Device();
  PrefillRunner runner = Runner(device.get());
  const KvLease lease = Reserve();
  const auto writer = node_.Writer(lease);
  int asked = 0;
  const auto revoke = [&] {
    if (++asked == 5) node_.pool().Release(lease);
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(runner.Run(Job(60), *writer, revoke, {}).status()));
}

TEST_F(StreamedPromptTest, WhatWasDoneBeforeACancellationStays) {
  const auto device = Device(BytesFor(24));  // three passes of 20 rows
  const Result expected = Run(nullptr, Job(60));
  const KvLease lease = Reserve();
  const auto after_a_pass = [&] {
    return node_.pool().ValidTokens(lease) > 0 ? absl::CancelledError("killed here") : absl::OkStatus();
  };
  {
    PrefillRunner runner = Runner(device.get());
    const auto writer = node_.Writer(lease);
    EXPECT_TRUE(absl::IsCancelled(runner.Run(Job(60), *writer, after_a_pass, {}).status()));
  }
  EXPECT_THAT(node_.pool().ValidTokens(lease), testing::AnyOf(20, 40));
  const Result resumed = Run(device.get(), Job(60), lease);
  EXPECT_TRUE(resumed.streamed.has_value());
  EXPECT_GT(resumed.progress.front(), 20);
  EXPECT_EQ(resumed.token->logprob, expected.token->logprob);
}

TEST_F(StreamedPromptTest, ADeviceThatIsTooSmallIsNotUsedAndOneLineSaysSo) {
  const LogCapture log;
  EXPECT_EQ(Device(1 << 20)->prefill(), nullptr);
  EXPECT_EQ(Device(/*memory_bytes=*/0, /*dense_bytes=*/1 << 10)->prefill(), nullptr);
  EXPECT_THAT(
      log.lines(),
      testing::ElementsAre(
          testing::AllOf(testing::HasSubstr("--device host is not used"), testing::HasSubstr("--device-memory")),
          testing::AllOf(testing::HasSubstr("--device host is not used"), testing::HasSubstr("more than the 1024"))));
}

// Without CUDA, without a driver, without that many GPUs, or of a model that they have no kernels for, as this one.
TEST_F(StreamedPromptTest, GpusThatCannotBeUsedAreOneLineToo) {
  const LogCapture log;
  PrefillConfig config;
  config.stream.devices = "0,1";
  const auto devices = PrefillBackends::Create(config, node_.shared_segment(), TestKernels(), node_.workers());
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ((*devices)->prefill(), nullptr);
  EXPECT_EQ((*devices)->state().devices, 2);
  EXPECT_EQ((*devices)->state().open, 0);
  const double now = SteadySeconds();
  for (const double later : {0.9, 1.1, 2.2}) (*devices)->BetweenPrompts(now + later * PrefillBackends::kRetrySeconds);
  EXPECT_THAT(log.lines(), testing::ElementsAre(
                               testing::HasSubstr("--devices 0,1 is not used, all prompts are computed in place: ")));
}

// Another cut has other sums: equal shares are what devices of one kind have anyway.
TEST_F(StreamedPromptTest, SharesOfDevicesCutThePrompt) {
  constexpr int kPrompt = 340;
  const auto kv = [&](const std::string& shares) {
    PrefillConfig config;
    config.chunk_tokens = 16;
    config.stream.devices = "host,host";
    config.stream.device_shares = shares;
    config.stream.dense_bytes = 1 << 20;
    config.stream.from_tokens = kFrom;
    const auto devices =
        PrefillBackends::Create(config, node_.shared_segment(), TestKernels(), node_.workers()).value();
    EXPECT_TRUE(devices->MeasureCosts().ok());
    const KvLease lease = Reserve(kPrompt);
    EXPECT_EQ(Run(devices.get(), Job(kPrompt), lease).streamed->devices, 2) << shares;
    std::vector<uint16_t> entries;
    for (int64_t position = 0; position < kPrompt; ++position) {
      std::vector<uint16_t> entry(static_cast<size_t>(node_.spec().kv_dim()));
      node_.pool().Pages(lease).Read(node_.spec().num_layers - 1, position, entry.data());
      entries.insert(entries.end(), entry.begin(), entry.end());
    }
    node_.pool().Release(lease);
    return entries;
  };
  const LogCapture log;
  const std::vector<uint16_t> equal = kv("auto");
  EXPECT_EQ(kv("1,1"), equal);
  EXPECT_THAT(log.lines(), testing::Not(testing::Contains(testing::HasSubstr("parts of"))));
  EXPECT_NE(kv("5,1"), equal);
  EXPECT_THAT(log.lines(), testing::Contains(testing::HasSubstr("in parts of 5 : 1")));
}

TEST_F(StreamedPromptTest, APromptThatIsTooLongForTheDeviceIsComputedWithoutIt) {
  // Room for 24 rows at a time, which may not be cut.
  engine::HostPrefill compute(node_.spec(), weights_, TestKernels(), node_.workers(), 16);
  const auto host = device::NewHostDevice({.memory_bytes = int64_t{1} << 30});
  StreamPrefill prefill(*host, node_.spec(), weights_, compute, {.device_bytes = BytesFor(24), .dense_bytes = 1 << 20});
  PrefillRunner runner(node_.engine(), node_.workers(), form_,
                       {.prefill = [&] { return &prefill; }, .from_tokens = 1, .trace_file = ""});
  int streamed = 0;
  const PrefillEvents events{.on_progress = {}, .on_streamed = [&](const StreamCounters&) { ++streamed; }};
  for (const int tokens : {24, 40}) {
    const auto writer = node_.Writer(Reserve());
    EXPECT_TRUE(runner.Run(Job(tokens), *writer, NoCancel, events).ok());
    EXPECT_EQ(streamed, 1);
  }
}

// Devices of which none is left in the middle of a prompt.
class LostDevices final : public PromptPrefill {
 public:
  MlaForm FormFor(MlaForm wanted) const override { return wanted; }
  absl::Status CheckFits(IndexRange, MlaForm) override { return absl::OkStatus(); }
  absl::Status Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages>, MlaForm,
                   absl::FunctionRef<absl::Status()>, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    events.on_layer({0, std::ssize(rows)}, 0);
    return absl::UnavailableError("all lost");
  }
  StreamCounters run_counters() const override { return {.lost_devices = 2}; }
  absl::Status WriteTrace(const std::string&) const override { return absl::OkStatus(); }
};

TEST_F(StreamedPromptTest, APromptWhoseDevicesAreLostIsComputedWithoutThem) {
  const Result expected = Run(nullptr, Job(60));
  LostDevices lost;
  PrefillRunner runner(node_.engine(), node_.workers(), form_,
                       {.prefill = [&] { return &lost; }, .from_tokens = 1, .trace_file = ""});
  int64_t lost_devices = 0;
  const PrefillEvents events{.on_progress = {},
                             .on_streamed = [&](const StreamCounters& run) { lost_devices += run.lost_devices; }};
  const KvLease lease = Reserve();
  const auto writer = node_.Writer(lease);
  const auto token = runner.Run(Job(60), *writer, NoCancel, events);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ((*token)->logprob, expected.token->logprob);
  EXPECT_EQ(lost_devices, 2);
}

// Rather than computed another way.
TEST_F(StreamedPromptTest, AWayThatIsRequiredAndCannotBeHadIsRefused) {
  LostDevices lost;
  engine::HostPrefill compute(node_.spec(), weights_, TestKernels(), node_.workers(), 16);
  const auto host = device::NewHostDevice({.memory_bytes = int64_t{1} << 30});
  StreamPrefill small(*host, node_.spec(), weights_, compute, {.device_bytes = BytesFor(24), .dense_bytes = 1 << 20});
  for (const auto& [device, message] : std::initializer_list<std::pair<PromptPrefill*, const char*>>{
           {nullptr, "cannot be streamed: prefill has no device"},
           {&lost, "cannot be streamed: all lost"},
           {&small, "cannot be streamed: a streamed prefill of 60 tokens needs"}}) {
    PrefillRunner runner(node_.engine(), node_.workers(), form_,
                         {.prefill = [device = device] { return device; }, .from_tokens = 1, .trace_file = ""});
    PrefillJob job = Job(60);
    const auto writer = node_.Writer(Reserve());
    for (const bool scoring : {false, true}) {
      if (scoring) job.score_top = 0;
      job.way = PromptWay::kStreamed;
      job.way_required = true;
      const absl::Status status = runner.Run(job, *writer, NoCancel, {}).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()), testing::StartsWith(message));
      job.way = PromptWay::kChunked;
      EXPECT_TRUE(absl::IsInvalidArgument(runner.Run(job, *writer, NoCancel, {}).status()));
      job.way = PromptWay::kInPlace;
      EXPECT_TRUE(runner.Run(job, *writer, NoCancel, {}).ok());
    }
  }
}

// Devices that ask whether to go on, but do not: to ask is no sign of life, a computed module is.
class SlowDevices final : public PromptPrefill {
 public:
  MlaForm FormFor(MlaForm wanted) const override { return wanted; }
  absl::Status CheckFits(IndexRange, MlaForm) override { return absl::OkStatus(); }
  absl::Status Run(std::span<const model::EngineRow>, std::span<const kv::KvPages>, MlaForm,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    const auto later = Heartbeat::Clock::now() + std::chrono::hours(1);
    const auto silence = heartbeat->Silence(later);
    EXPECT_GT(silence, std::chrono::minutes(59));
    EXPECT_TRUE(interrupted().ok());
    EXPECT_EQ(heartbeat->Silence(later), silence);
    events.on_step();
    EXPECT_LT(heartbeat->Silence(later), silence);
    return absl::UnavailableError("lost");
  }
  StreamCounters run_counters() const override { return {}; }
  absl::Status WriteTrace(const std::string&) const override { return absl::OkStatus(); }

  std::shared_ptr<const Heartbeat> heartbeat;
};

TEST_F(StreamedPromptTest, BeatsWithTheModules) {
  SlowDevices devices;
  PrefillRunner runner(node_.engine(), node_.workers(), form_,
                       {.prefill = [&] { return &devices; }, .from_tokens = 1, .trace_file = ""});
  devices.heartbeat = runner.heartbeat();
  const KvLease lease = Reserve();
  const auto writer = node_.Writer(lease);
  EXPECT_TRUE(runner.Run(Job(60), *writer, NoCancel, {}).ok());
}

TEST_F(StreamedPromptTest, WritesTheTimeline) {
  const std::string path = testing::TempDir() + "streamed_prompt_trace-" + std::to_string(getpid()) + ".json";
  const auto device = Device();
  Run(device.get(), Job(60), Reserve(), path);
  std::FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  std::remove(path.c_str());
  Run(device.get(), Job(60), Reserve(), "/no/such/folder/trace.json");  // said in the log only
}

}  // namespace
}  // namespace moestro::prefill
