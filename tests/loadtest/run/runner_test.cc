#include "loadtest/run/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/workloads/fixed.h"
#include "loadtest/workloads/poisson.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

std::vector<Request> Requests(int count, uint32_t tokens) {
  std::vector<Request> requests(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    requests[static_cast<size_t>(i)].tag = i;
    requests[static_cast<size_t>(i)].max_tokens = tokens;
    requests[static_cast<size_t>(i)].token_ids = {1, 2, 3};
  }
  return requests;
}

TEST(Runner, RecordsWhatTheClientSees) {
  FakeTransport transport;
  FixedWorkload workload(Requests(1, 5), 1);
  const RunResult result = RunWorkload(workload, transport, {});
  ASSERT_EQ(result.records.size(), 1U);
  const Record& record = result.records[0];
  EXPECT_TRUE(record.completed());
  EXPECT_THAT(record.tokens, testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_NEAR(*record.ttft(), 1, 1e-9);
  EXPECT_NEAR(*record.tpot(), 0.1, 1e-9);
  EXPECT_NEAR(*record.ended, 1.5, 1e-9);
  EXPECT_NEAR(record.longest_wait(), 1, 1e-9);
  EXPECT_EQ(record.queue_seconds, 0.25);
  EXPECT_EQ(record.path, "split") << "the last word is the server's account at the end";
  EXPECT_EQ(record.cached_tokens, 3U);
  EXPECT_NEAR(result.seconds, 1.5, 1e-9);
}

TEST(Runner, KeepsConcurrencyAndReportsTags) {
  FakeTransport transport;
  FixedWorkload workload(Requests(10, 2), 3);
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_EQ(transport.most_in_flight(), 3);
  ASSERT_EQ(result.records.size(), 10U);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(result.records[static_cast<size_t>(i)].tag, i);
  EXPECT_NEAR(result.seconds, 4 * 1.2, 1e-9);
}

TEST(Runner, CancelsAfterTheTokensThatTheRequestNames) {
  std::vector<Request> requests = Requests(3, 10);
  requests[0].cancel_after_tokens = 4;
  requests[1].cancel_after_tokens = 0;
  FakeTransport transport;
  FixedWorkload workload(requests, 1);
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_TRUE(result.records[0].was_cancelled());
  EXPECT_EQ(result.records[0].tokens.size(), 4U);
  EXPECT_TRUE(result.records[1].was_cancelled());
  EXPECT_TRUE(result.records[1].tokens.empty());
  EXPECT_TRUE(result.records[2].completed());
}

TEST(Runner, ErrorsAreRecordedAndTheRunGoesOn) {
  FakeTransport transport([](const Request& request, int) {
    return FakeTimes{.ttft = 0.5, .status = request.tag == 1 ? absl::ResourceExhaustedError("full") : absl::OkStatus()};
  });
  FixedWorkload workload(Requests(3, 2), 1);
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_TRUE(result.records[1].failed());
  EXPECT_EQ(result.records[1].status.message(), "full");
  EXPECT_TRUE(result.records[2].completed());
}

TEST(Runner, OpenLoopSendsOnTimeWhateverIsRunning) {
  FakeTransport transport([](const Request&, int) { return FakeTimes{.ttft = 100}; });
  PoissonWorkload workload(5, 20, {.vocab_size = 100, .max_context_tokens = 100});
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_GT(transport.most_in_flight(), 50);
  for (const Record& record : result.records) EXPECT_NEAR(record.sent, record.scheduled, 1e-9);
}

TEST(Runner, LimitOfRequestsInFlightShowsAsLateness) {
  FakeTransport transport;
  PoissonWorkload workload(50, 2, {.vocab_size = 100, .max_context_tokens = 100});
  RunOptions options;
  options.max_in_flight = 2;
  const RunResult result = RunWorkload(workload, transport, options);
  EXPECT_EQ(transport.most_in_flight(), 2);
  EXPECT_GT(result.records.back().sent - result.records.back().scheduled, 1);
}

TEST(Runner, InterruptCancelsWhatRunsAndSendsNothingMore) {
  FakeTransport transport;
  FixedWorkload workload(Requests(100, 1000), 4);
  RunOptions options;
  options.interrupted = [&] { return transport.Now() > 1010; };
  const RunResult result = RunWorkload(workload, transport, options);
  EXPECT_TRUE(result.interrupted);
  ASSERT_EQ(result.records.size(), 4U);
  for (const Record& record : result.records) {
    EXPECT_TRUE(record.was_cancelled());
    EXPECT_GT(record.tokens.size(), 80U);
  }
  EXPECT_LT(result.seconds, 10.5);
}

std::vector<Record> Failed(const absl::Status& status) {
  Record record;
  record.ended = 1;
  record.status = status;
  return {record};
}

TEST(CheckAnyCompleted, ErrorsOfRequestsAreNotThoseOfFlags) {
  for (const absl::Status& refused : {absl::InvalidArgumentError("too long"), absl::NotFoundError("too long"),
                                      absl::ResourceExhaustedError("too long")}) {
    EXPECT_EQ(CheckAnyCompleted(Failed(refused)),
              absl::FailedPreconditionError("no request completed; the first error: too long"));
  }
  EXPECT_EQ(CheckAnyCompleted(Failed(absl::UnavailableError("down"))).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CheckAnyCompleted({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CheckAnyCompleted(Failed(absl::OkStatus())).ok());
}

}  // namespace
}  // namespace moestro::loadtest
