#include "services/router/rpc/queued_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <vector>

namespace moestro {
namespace {

// A client that reads nothing until it is allowed to, and leaves after `most` replies.
struct SlowClient {
  bool Write(int reply) {
    reads.wait();
    if (std::ssize(taken) == most) return false;
    taken.push_back(reply);
    return true;
  }

  std::shared_future<void> reads;
  int64_t most = 1000;
  std::vector<int> taken = {};
};

TEST(QueuedWriter, NobodyWaitsForTheClientAndItGetsAllInOrder) {
  std::promise<void> reads;
  SlowClient client{.reads = reads.get_future().share()};
  QueuedWriter<int, SlowClient> writer(client);
  std::vector<int> all(500);
  std::iota(all.begin(), all.end(), 0);
  for (const int reply : all) ASSERT_TRUE(writer.Push(reply).ok());
  reads.set_value();
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(client.taken, all);
}

TEST(QueuedWriter, SaysThatTheClientHasGone) {
  std::promise<void> reads;
  reads.set_value();
  SlowClient client{.reads = reads.get_future().share(), .most = 2};
  QueuedWriter<int, SlowClient> writer(client);
  absl::Status status;
  while (status.ok()) status = writer.Push(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer.Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client.taken.size(), 2u);
}

TEST(QueuedWriter, WithoutRepliesIsDoneAtOnce) {
  SlowClient client;
  QueuedWriter<int, SlowClient> writer(client);
  EXPECT_TRUE(writer.Finish().ok());
}

}  // namespace
}  // namespace moestro
