#include "services/router/rpc/queued_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <vector>

#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

struct NumberMessage {
  size_t SpaceUsedLong() const { return 8; }
  int value = 0;
};

// A client that reads nothing until it is allowed to, and leaves after `most` replies.
struct SlowClient {
  bool Write(const NumberMessage& reply) {
    reads.wait();
    if (std::ssize(taken) == most) return false;
    taken.push_back(reply.value);
    return true;
  }

  std::shared_future<void> reads;
  int64_t most = 1000;
  std::vector<int> taken = {};
};

class QueuedWriterTest : public ::testing::Test {
 protected:
  using Writer = QueuedWriter<NumberMessage, SlowClient>;
  static constexpr SlowClientLimits kLimits{
      .stall = std::chrono::seconds(30), .call_bytes = 8 * 600, .process_bytes = 8 * 1000};

  testing::FakeRequestClock clock_;
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{kLimits, clock_, stalled_, behind_};
};

TEST_F(QueuedWriterTest, NobodyWaitsForTheClientAndItGetsAllInOrder) {
  std::promise<void> reads;
  SlowClient client{.reads = reads.get_future().share()};
  Writer writer(client, clients_, [] {});
  std::vector<int> all(500);
  std::iota(all.begin(), all.end(), 0);
  for (const int reply : all) ASSERT_TRUE(writer.Push({reply}).ok());
  reads.set_value();
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(client.taken, all);
}

TEST_F(QueuedWriterTest, SaysThatTheClientHasGone) {
  std::promise<void> reads;
  reads.set_value();
  SlowClient client{.reads = reads.get_future().share(), .most = 2};
  SlowClients patient({}, clock_, stalled_, behind_);
  Writer writer(client, patient, [] {});
  absl::Status status;
  while (status.ok()) status = writer.Push({1});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer.Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client.taken.size(), 2u);
}

TEST_F(QueuedWriterTest, WhatWaitsForOneClientIsBounded) {
  std::promise<void> reads;
  SlowClient client{.reads = reads.get_future().share()};
  Writer writer(client, clients_, [] {});
  int pushed = 0;
  absl::Status status;
  while ((status = writer.Push({pushed})).ok()) ++pushed;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(pushed, 600);
  EXPECT_EQ(behind_.Value(), 1);
  reads.set_value();
  EXPECT_FALSE(writer.Finish().ok());
  EXPECT_LE(client.taken.size(), 1u);  // the one that was under way
}

TEST_F(QueuedWriterTest, WhatWaitsForAllClientsIsBoundedAndComesBack) {
  std::promise<void> reads;
  SlowClient first{.reads = reads.get_future().share()}, second = first;
  {
    Writer one(first, clients_, [] {}), other(second, clients_, [] {});
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(one.Push({i}).ok() && other.Push({i}).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(one.Push({500})));
    reads.set_value();
  }
  EXPECT_EQ(second.taken.size(), 500u);
  Writer later(first, clients_, [] {});
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(later.Push({i}).ok());
}

TEST_F(QueuedWriterTest, AClientThatReadsNothingIsCancelled) {
  std::promise<void> reads, writing;
  struct Reader {
    bool Write(const NumberMessage&) {
      writing.set_value();
      reads.wait();
      return false;
    }
    std::promise<void>& writing;
    std::shared_future<void> reads;
  } client{writing, reads.get_future().share()};
  QueuedWriter<NumberMessage, Reader> writer(client, clients_, [&] { reads.set_value(); });
  ASSERT_TRUE(writer.Push({1}).ok());
  writing.get_future().wait();
  clock_.Advance(std::chrono::seconds(29));
  clients_.CancelStalled();
  EXPECT_EQ(stalled_.Value(), 0);
  clock_.Advance(std::chrono::seconds(1));
  clients_.CancelStalled();
  clients_.CancelStalled();  // once is enough
  EXPECT_TRUE(absl::IsCancelled(writer.Finish()));
  EXPECT_EQ(stalled_.Value(), 1);
}

TEST_F(QueuedWriterTest, AClientThatHasNothingToReadIsNotCancelled) {
  std::promise<void> reads;
  reads.set_value();
  SlowClient client{.reads = reads.get_future().share()};
  Writer writer(client, clients_, [] { ADD_FAILURE() << "cancelled"; });
  ASSERT_TRUE(writer.Push({1}).ok());
  EXPECT_TRUE(writer.Finish().ok());
  clock_.Advance(std::chrono::hours(1));
  clients_.CancelStalled();
  EXPECT_EQ(stalled_.Value(), 0);
}

TEST_F(QueuedWriterTest, WithoutRepliesIsDoneAtOnce) {
  SlowClient client;
  Writer writer(client, clients_, [] {});
  EXPECT_TRUE(writer.Finish().ok());
}

}  // namespace
}  // namespace moestro::router
