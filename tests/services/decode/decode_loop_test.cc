#include "services/decode/decode_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/support/engine_node.h"

namespace moestro {
namespace {

constexpr int32_t kNanToken = 11;

class DecodeLoopTest : public testing::Test {
 protected:
  // A lease whose first `tokens` tokens are valid.
  KvLease Prompt(int tokens) {
    const KvLease lease = *node_.pool().Reserve({.capacity = 200});
    const auto writer = node_.Writer(lease);
    std::vector<EngineRow> rows;
    for (int i = 0; i < tokens; ++i) rows.push_back({20 + i, i, 0, false});
    const KvPages pages = writer->pages();
    EXPECT_TRUE(node_.engine()
                    .Forward(
                        {rows, std::span(&pages, 1), MlaForm::kAbsorbed}, [] { return absl::OkStatus(); },
                        [](int64_t, std::span<const float>) {})
                    .ok());
    writer->Publish(tokens);
    return lease;
  }

  static DecodeJob Job(const KvLease& lease, int32_t token, int64_t position, int64_t max_tokens) {
    DecodeJob job;
    job.lease = &lease;
    job.token = token;
    job.position = position;
    job.max_tokens = max_tokens;
    return job;
  }

  struct Result {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::optional<StopReason> reason;
    absl::Status error;
  };
  static Result Collect(TokenStream& stream) {
    Result result;
    while (true) {
      auto event = stream.Next(std::chrono::seconds(60));
      if (!event) {
        ADD_FAILURE() << "no event";
        return result;
      }
      if (const auto* token = std::get_if<SampledToken>(&*event)) {
        result.ids.push_back(token->id);
        result.logprobs.push_back(token->logprob);
      } else if (const auto* reason = std::get_if<StopReason>(&*event)) {
        result.reason = *reason;
        return result;
      } else {
        result.error = std::get<absl::Status>(*event);
        return result;
      }
    }
  }

  EngineNode node_{/*max_rows=*/16, kNanToken};
  MetricsRegistry registry_{"decode"};
  DecodeMetrics metrics_{registry_};
  DecodeLoop loop_{node_.engine(), node_.pool(), metrics_, /*max_batch=*/4};
};

TEST_F(DecodeLoopTest, GeneratesToTheLimitAndPublishes) {
  const KvLease lease = Prompt(5);
  const auto stream = *loop_.Start(Job(lease, 7, 5, 10));
  const Result result = Collect(*stream);
  loop_.Remove(stream);
  EXPECT_EQ(result.ids.size(), 10u);
  EXPECT_EQ(result.reason, StopReason::kLength);
  EXPECT_EQ(node_.pool().ValidTokens(lease), 15);
}

TEST_F(DecodeLoopTest, StopIdEndsAndIsNotEmitted) {
  const KvLease first = Prompt(5);
  const Result free = Collect(**loop_.Start(Job(first, 7, 5, 10)));
  const KvLease second = Prompt(5);
  DecodeJob job = Job(second, 7, 5, 10);
  job.stop_ids = {free.ids[4]};
  const Result stopped = Collect(**loop_.Start(job));
  EXPECT_EQ(stopped.reason, StopReason::kStopId);
  const auto end = std::find(free.ids.begin(), free.ids.end(), free.ids[4]);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(free.ids.begin(), end));
}

TEST_F(DecodeLoopTest, BatchesLargerThanTheLimitGiveTheBitsOfOne) {
  std::vector<Result> alone;
  for (int i = 0; i < 7; ++i) {
    const KvLease lease = Prompt(3 + i);
    const auto stream = *loop_.Start(Job(lease, 2 * i, 3 + i, 12));
    alone.push_back(Collect(*stream));
    loop_.Remove(stream);
    node_.pool().Release(lease);
  }
  std::vector<KvLease> leases;
  for (int i = 0; i < 7; ++i) leases.push_back(Prompt(3 + i));
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 7; ++i) streams.push_back(*loop_.Start(Job(leases[static_cast<size_t>(i)], 2 * i, 3 + i, 12)));
  for (size_t i = 0; i < 7; ++i) {
    const Result together = Collect(*streams[i]);
    EXPECT_EQ(together.ids, alone[i].ids);
    EXPECT_EQ(together.logprobs, alone[i].logprobs);
  }
}

TEST_F(DecodeLoopTest, OneBadSequenceDoesNotHarmItsNeighbours) {
  const KvLease good = Prompt(5);
  const Result expected = Collect(**loop_.Start(Job(good, 7, 5, 20)));
  const KvLease beside = Prompt(5);
  const KvLease bad = Prompt(5);
  const auto neighbour = *loop_.Start(Job(beside, 7, 5, 20));
  const auto failing = *loop_.Start(Job(bad, kNanToken, 5, 20));
  EXPECT_TRUE(absl::IsInternal(Collect(*failing).error));
  EXPECT_EQ(Collect(*neighbour).ids, expected.ids);
}

TEST_F(DecodeLoopTest, RemoveEndsARunningSequence) {
  const KvLease lease = Prompt(5);
  const auto stream = *loop_.Start(Job(lease, 7, 5, 190));
  ASSERT_TRUE(stream->Next(std::chrono::seconds(60)));
  loop_.Remove(stream);
  const int64_t valid = node_.pool().ValidTokens(lease);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(node_.pool().ValidTokens(lease), valid) << "a removed sequence must not touch its pages";
}

TEST_F(DecodeLoopTest, BadJobsAreRefused) {
  const KvLease lease = Prompt(5);
  const auto message = [&](const DecodeJob& job) {
    const auto started = loop_.Start(job);
    EXPECT_TRUE(absl::IsInvalidArgument(started.status()));
    return std::string(started.status().message());
  };
  EXPECT_THAT(message(Job(lease, -1, 5, 1)), testing::HasSubstr("token -1"));
  EXPECT_THAT(message(Job(lease, 1, 4, 1)), testing::HasSubstr("position 4"));
  EXPECT_THAT(message(Job(lease, 1, 5, 0)), testing::HasSubstr("max_tokens"));
  EXPECT_THAT(message(Job(lease, 1, 5, 1000)), testing::HasSubstr("max_tokens"));
}

}  // namespace
}  // namespace moestro
