#include "services/router/http/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;

class ResponseTest : public ::testing::Test {
 protected:
  static constexpr SlowClientLimits kLimits{
      .stall = std::chrono::seconds(30), .call_bytes = 100, .process_bytes = 1000};

  testing::FakeRequestClock clock_;
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{kLimits, clock_, stalled_, behind_};
  int wakes_ = 0, aborts_ = 0;
  Response response_{clients_, [this] { ++wakes_; }, [this] { ++aborts_; }};
};

TEST_F(ResponseTest, SendsAWholeAnswer) {
  EXPECT_TRUE(response_.Take().empty());
  EXPECT_FALSE(response_.begun());
  EXPECT_TRUE(response_.SendJson(404, "{}").ok());
  EXPECT_TRUE(response_.begun());
  EXPECT_GT(wakes_, 0);
  const Response::Ready ready = response_.Take();
  EXPECT_EQ(ready.head->status, 404);
  EXPECT_EQ(ready.head->length, 2u);
  EXPECT_THAT(ready.pieces, ElementsAre("{}"));
  EXPECT_TRUE(ready.complete);
}

TEST_F(ResponseTest, SendsPieces) {
  EXPECT_TRUE(response_.Begin({}).ok());
  EXPECT_FALSE(response_.Take().head->length);
  EXPECT_TRUE(response_.Write("a").ok());
  EXPECT_TRUE(response_.Write("b").ok());
  const Response::Ready ready = response_.Take();
  EXPECT_FALSE(ready.head || ready.complete);
  EXPECT_THAT(ready.pieces, ElementsAre("a", "b"));
  EXPECT_EQ(ready.bytes, 2u);
  response_.EndWrite(ready.bytes);
  response_.End();
  EXPECT_TRUE(response_.Take().complete);
}

TEST_F(ResponseTest, KnowsWhenTheTokenCameThatWaitsLongest) {
  const CallTimes::Clock::time_point first(std::chrono::seconds(1)), second(std::chrono::seconds(2));
  EXPECT_TRUE(response_.Begin({}).ok());
  EXPECT_TRUE(response_.Write("no token").ok());
  EXPECT_FALSE(response_.Take().token_came);
  response_.call().times().NoteToken(first);
  EXPECT_TRUE(response_.Write("a").ok());
  response_.call().times().NoteToken(second);
  EXPECT_TRUE(response_.Write("b").ok());
  EXPECT_EQ(response_.Take().token_came, first);
  EXPECT_TRUE(response_.Write("the end").ok());
  EXPECT_FALSE(response_.Take().token_came);
}

TEST_F(ResponseTest, AClientThatHasGoneEndsTheCall) {
  EXPECT_TRUE(response_.Begin({}).ok());
  response_.Close();
  EXPECT_TRUE(absl::IsCancelled(response_.Write("a")));
  EXPECT_TRUE(absl::IsCancelled(response_.call().Check()));
}

TEST_F(ResponseTest, WaitsUntilTheClientHasTakenWhatWasWritten) {
  EXPECT_TRUE(response_.Begin({}).ok());
  EXPECT_TRUE(response_.WaitUntilTaken().ok());
  EXPECT_TRUE(response_.Write("a").ok());
  std::thread client([this] {
    const Response::Ready ready = response_.Take();
    response_.BeginWrite();
    response_.EndWrite(ready.bytes);
  });
  EXPECT_TRUE(response_.WaitUntilTaken().ok());
  client.join();
  EXPECT_TRUE(response_.Write("b").ok());
  std::thread leaving([this] { response_.Close(); });
  EXPECT_TRUE(absl::IsCancelled(response_.WaitUntilTaken()));
  leaving.join();
}

TEST_F(ResponseTest, ASlowClientLosesItsAnswer) {
  EXPECT_TRUE(response_.Begin({}).ok());
  EXPECT_TRUE(response_.Write(std::string(100, 'a')).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(response_.Write("b")));
  EXPECT_EQ(behind_.Value(), 1);
}

TEST_F(ResponseTest, AClientThatTakesNothingIsAborted) {
  EXPECT_TRUE(response_.Begin({}).ok());
  response_.BeginWrite();
  clock_.Advance(std::chrono::seconds(31));
  clients_.CancelStalled();
  EXPECT_EQ(aborts_, 1);
  EXPECT_EQ(stalled_.Value(), 1);
}

TEST_F(ResponseTest, ASilentStreamIsKeptAlive) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(response_.Begin({}, ": here\n\n", std::chrono::seconds(10)).ok());
  response_.Tick(now + std::chrono::seconds(9));
  EXPECT_TRUE(response_.Take().pieces.empty());
  response_.Tick(now + std::chrono::seconds(11));
  EXPECT_THAT(response_.Take().pieces, ElementsAre(": here\n\n"));
  response_.End();
  response_.Tick(now + std::chrono::seconds(100));
  EXPECT_TRUE(response_.Take().pieces.empty());
}

}  // namespace
}  // namespace moestro::router
