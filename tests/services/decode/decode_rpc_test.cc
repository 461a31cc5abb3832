// Sessions over real gRPC on a unix socket.
#include "services/decode/decode_rpc.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "common/rpc/server.h"
#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DecodeRpcTest : public ::testing::Test {
 protected:
  // One call.
  class Session {
   public:
    explicit Session(v1::DecodeService::Stub& stub) : stream_(stub.Session(&context_)) {}

    // False when the call has ended.
    bool Reserve(const std::vector<int32_t>& tokens, uint32_t max_tokens, uint64_t arrival,
                 const std::string& fingerprint = kTestFingerprint) {
      v1::SessionRequest request;
      request.mutable_reserve()->mutable_token_ids()->Add(tokens.begin(), tokens.end());
      request.mutable_reserve()->set_max_tokens(max_tokens);
      request.mutable_reserve()->set_arrival(arrival);
      request.mutable_reserve()->set_fingerprint(fingerprint);
      return stream_->Write(request) && stream_->Read(&reply_);
    }
    void Prompt(uint32_t max_tokens) {
      v1::SessionRequest request;
      request.mutable_prompt()->set_max_tokens(max_tokens);
      stream_->Write(request);
    }
    void Start(int32_t token, uint32_t position, uint32_t max_tokens) {
      v1::SessionRequest request;
      request.mutable_start()->set_token(token);
      request.mutable_start()->set_position(position);
      request.mutable_start()->set_max_tokens(max_tokens);
      stream_->Write(request);
    }
    bool Read() { return stream_->Read(&reply_); }
    const v1::SessionResponse& reply() const { return reply_; }
    void Cancel() { context_.TryCancel(); }
    // Reads to the end.
    grpc::Status Finish() {
      while (Read()) {
        if (reply_.has_token()) ids.push_back(reply_.token().id());
        if (reply_.has_progress()) done.push_back(reply_.progress().done_tokens());
        if (reply_.has_finished()) reason = reply_.finished().reason();
      }
      return stream_->Finish();
    }

    std::vector<int32_t> ids;
    std::vector<uint32_t> done;
    v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
    v1::SessionResponse reply_;
  };

  void SetUp() override {
    const std::string address = "unix:" + ::testing::TempDir() + "decode-rpc-" + std::to_string(getpid());
    server_ = RpcServer::Start({address}, {{v1::DecodeService::service_full_name(), &rpc_}}).value();
    stub_ = v1::DecodeService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    rpc_.Serve(&decode_.node.pool(), &decode_.leases, &decode_.loop, /*grammars=*/nullptr, kTestFingerprint);
  }

  static std::vector<int32_t> Tokens(int count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (7 * i) % 190;
    return tokens;
  }

  EngineNode alone_{256};
  DecodeNode decode_{{.max_chunk = 32, .page_count = 6}};
  DecodeRpc rpc_{decode_.registry, kHang};
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DecodeService::Stub> stub_;
};

TEST_F(DecodeRpcTest, APromptReportsProgressThenItsTokens) {
  const std::vector<int32_t> prompt = Tokens(70);
  Session session(*stub_);
  ASSERT_TRUE(session.Reserve(prompt, 12, 1));
  EXPECT_EQ(session.reply().reserved().cached_tokens(), 0u);
  EXPECT_EQ(session.reply().reserved().lease().pages_size(), 2);
  session.Prompt(12);
  EXPECT_TRUE(session.Finish().ok());
  EXPECT_THAT(session.done, ElementsAre(32, 64, 70));
  EXPECT_EQ(session.ids, RunAlone(alone_, prompt, 12, {}).ids);
  EXPECT_EQ(session.reason, v1::FINISH_REASON_LENGTH);

  Session again(*stub_);
  ASSERT_TRUE(again.Reserve(prompt, 12, 2));
  EXPECT_EQ(again.reply().reserved().cached_tokens(), 64u);
  again.Prompt(12);
  EXPECT_TRUE(again.Finish().ok());
  EXPECT_EQ(again.ids, session.ids);
}

TEST_F(DecodeRpcTest, TheFirstReplyTellsTheWaitForAPlace) {
  Session session(*stub_);
  ASSERT_TRUE(session.Reserve(Tokens(40), 2, 1));
  decode_.gate.SetClosed(true);  // the first sequence takes the step that waits
  const auto lease = decode_.leases.Reserve({.tokens = Tokens(3), .max_tokens = 1}).value();
  const auto first = decode_.loop.Prompt(lease, {.max_tokens = 1}).value();
  session.Prompt(2);
  decode_.gate.SetClosed(false);
  ASSERT_TRUE(session.Read());
  EXPECT_GT(session.reply().waited_seconds(), 0);
  ASSERT_TRUE(session.Read());
  EXPECT_EQ(session.reply().waited_seconds(), 0) << "once is enough";
  EXPECT_TRUE(session.Finish().ok());
  decode_.loop.Remove(first);
}

TEST_F(DecodeRpcTest, RefusalsSayWhetherWaitingHelps) {
  Session never(*stub_);
  EXPECT_FALSE(never.Reserve(Tokens(384), 1, 1));
  EXPECT_EQ(never.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  Session first(*stub_);
  ASSERT_TRUE(first.Reserve(Tokens(300), 20, 1));
  Session later(*stub_);
  EXPECT_FALSE(later.Reserve(Tokens(100), 20, 2));
  EXPECT_EQ(later.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(DecodeRpcTest, TokensForOtherWeightsAreRefused) {
  Session session(*stub_);
  ASSERT_FALSE(session.Reserve(Tokens(10), 5, 1, "others"));
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(),
            std::string("decode serves weights ") + kTestFingerprint + ", the router those of others: restart decode");
  EXPECT_EQ(decode_.node.pool().stats().leases, 0);
  Session unchecked(*stub_);
  EXPECT_TRUE(unchecked.Reserve(Tokens(10), 5, 1, ""));
}

TEST_F(DecodeRpcTest, StartOrPromptFollowsReserve) {
  Session twice(*stub_);
  ASSERT_TRUE(twice.Reserve(Tokens(10), 5, 1));
  EXPECT_FALSE(twice.Reserve(Tokens(10), 5, 1));
  EXPECT_EQ(twice.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  Session first(*stub_);
  first.Prompt(5);
  EXPECT_EQ(first.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(DecodeRpcTest, APreemptedSessionEndsWithAborted) {
  Session younger(*stub_);
  ASSERT_TRUE(younger.Reserve({50}, 300, 2));
  Session in_prefill(*stub_);
  ASSERT_TRUE(in_prefill.Reserve({60}, 300, 3));
  Session older(*stub_);
  ASSERT_TRUE(older.Reserve({70}, 300, 1));
  decode_.gate.SetClosed(true);  // or the younger may end before the older begins
  younger.Prompt(300);
  older.Prompt(300);
  while (decode_.metrics.waiting.Value() + decode_.metrics.batch_size.Value() < 2) std::this_thread::yield();
  decode_.gate.SetClosed(false);
  EXPECT_TRUE(older.Finish().ok());
  EXPECT_EQ(older.ids, RunAlone(alone_, {70}, 300, {}).ids);
  const grpc::Status status = younger.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("preempted: "));
  in_prefill.Start(5, 1, 10);
  EXPECT_EQ(in_prefill.Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(DecodeRpcTest, ACancelledSessionGivesItsPagesBack) {
  Session session(*stub_);
  ASSERT_TRUE(session.Reserve(Tokens(40), 300, 1));
  session.Prompt(300);
  ASSERT_TRUE(session.Read());
  session.Cancel();
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (decode_.node.pool().stats().leases > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace moestro::decode
