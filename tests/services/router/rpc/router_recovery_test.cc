// Preemption, roles that are replaced or hang, and clients that leave or do not read.
#include "tests/services/router/rpc/router_rpc_fixture.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

TEST_F(RouterRpcTest, PreemptedRequestsGoOn) {
  pool_.preempt_after = 3;
  pool_.preemptions_left = 2 * RequestLife::kMaxRecoveries;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(60), text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 60));
  EXPECT_EQ(finished.resumed(), static_cast<uint32_t>(2 * RequestLife::kMaxRecoveries));
  EXPECT_EQ(metrics_.preempted.Value(), 2 * RequestLife::kMaxRecoveries);
}

TEST_F(RouterRpcTest, DecodeSaysWhyPrefillFoundTheLeaseRevoked) {
  pool_.preempt_in_prefill = true;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
  EXPECT_EQ(finished.resumed(), 1u);
  EXPECT_EQ(metrics_.preempted.Value(), 1);
}

TEST_F(RouterRpcTest, GoesOnWhenDecodeIsReplaced) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  bool replaced = false;
  const grpc::Status status = Generate(Request(60), text, finished, [&](grpc::ClientContext&) {
    if (text.size() < 10 || replaced) return;
    replaced = true;
    decode_server_.reset();
    decode_server_ = StartRole("decode", decode_);
  });
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 60));
  EXPECT_GE(finished.resumed(), 1u);
}

// A role that hangs keeps its calls open; the monitor cuts them off when it has not been healthy for too long.
TEST_F(RouterRpcTest, GoesOnWhenCallsToDecodeThatHangsAreCutOff) {
  int hangs = 0;
  for (const bool in_reserve : {true, false}) {  // or while it generates
    SCOPED_TRACE(in_reserve);
    std::string text;
    v1::GenerateResponse::Finished finished;
    if (in_reserve) {
      pool_.decode_hangs = true;
    } else {
      pool_.decode_hangs_at = 10;
    }
    ++hangs;
    std::thread monitor([&] {
      EXPECT_TRUE(Eventually([&] { return pool_.hangs == hangs; }));
      peers_.CutOff(Role::kDecode);
    });
    const grpc::Status status = Generate(Request(30), text, finished);
    monitor.join();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(text, ExpectedText({'x', 'y'}, 30));
  }
}

TEST_F(RouterRpcTest, GoesOnWhenCallsToPrefillThatHangsAreCutOff) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  pool_.prefill_hangs = true;
  std::thread monitor([&] {
    EXPECT_TRUE(Eventually([&] { return pool_.hangs == 1; }));
    peers_.CutOff(Role::kPrefill);
  });
  const grpc::Status status = Generate(Request(5), text, finished);
  monitor.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
  EXPECT_GE(finished.resumed(), 1u);
}

TEST_F(RouterRpcTest, AClientThatDoesNotReadHoldsNothingAndIsCutOff) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 256);
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(Address("router"), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, Request(900));
  v1::GenerateResponse reply;
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_TRUE(Eventually([&] { return metrics_.generation_tokens.Value() == 900; }));
  EXPECT_TRUE(Eventually([&] { return metrics_.running.Value() == 0; }));
  EXPECT_THAT(policy_.Choose(kChunkedBelow, true).choice.load, HasSubstr("decode had work 0 s ago"));
  still_clock_.Advance(std::chrono::seconds(29));
  slow_clients_.CancelStalled();
  EXPECT_EQ(metrics_.clients_stalled.Value(), 0);
  still_clock_.Advance(std::chrono::seconds(1));
  slow_clients_.CancelStalled();
  EXPECT_EQ(metrics_.clients_stalled.Value(), 1);
  while (reader->Read(&reply)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RouterRpcTest, TellsTheClientThatDecodeServesOtherWeights) {
  decode_.serves_other_weights = true;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "decode: restart decode");
  EXPECT_EQ(decode_.refusals, 1);
}

TEST_F(RouterRpcTest, WaitsForPrefillThatIsAway) {
  prefill_server_.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    prefill_server_ = StartRole("prefill", prefill_);
  });
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  later.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
}

TEST_F(RouterRpcTest, CancellingEndsTheSession) {
  pool_.decode_hangs_at = 10;  // or it may end first
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status =
      Generate(Request(900), text, finished, [](grpc::ClientContext& context) { context.TryCancel(); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
  EXPECT_TRUE(Eventually([&] { return metrics_.running.Value() == 0; }));
}

TEST_F(RouterRpcTest, DeadlineEndsTheSession) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(900), text, finished, nullptr, std::chrono::milliseconds(200));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

}  // namespace
}  // namespace moestro::router
