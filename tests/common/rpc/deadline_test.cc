#include "common/rpc/deadline.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "common/rpc/channel.h"
#include "common/rpc/handler.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "tests/support/hang.h"
#include "tests/support/wall_clock.h"

namespace moestro {
namespace {

using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr std::chrono::hours kStep(2);  // longer than any deadline here

TEST(DeadlineTest, AStepMovesTheSystemsClockOnly) {
  const auto before = system_clock::now();
  const auto steady_before = steady_clock::now();
  const WallClockStep step(kStep);
  EXPECT_GE(system_clock::now(), before + kStep);
  EXPECT_LT(steady_clock::now(), steady_before + kStep);
}

// Whether the caller waits, as the server sees it after a step of its clock.
class SteppedServer final : public v1::InferenceService::Service {
 public:
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest*, v1::GetModelResponse*) override {
    for (const std::chrono::seconds by : {kStep, -kStep}) {
      const WallClockStep step(by);
      if (const absl::Status status = CallStatus(*context); !status.ok()) return ToGrpc(status);
      const auto deadline = DeadlineOf(*context);
      if (!deadline) return {grpc::StatusCode::INTERNAL, "no deadline"};
      if (*deadline > steady_clock::now() + kStep) return {grpc::StatusCode::INTERNAL, "a late deadline"};
    }
    return grpc::Status::OK;
  }
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest*, v1::TokenizeResponse*) override {
    return DeadlineOf(*context) ? grpc::Status(grpc::StatusCode::INTERNAL, "a deadline") : grpc::Status::OK;
  }
};

class DeadlineOfCallTest : public ::testing::Test {
 protected:
  DeadlineOfCallTest()
      : address_("unix:" + ::testing::TempDir() + "deadline_" + std::to_string(getpid()) + ".sock"),
        server_(*RpcServer::Start({address_}, {{v1::InferenceService::service_full_name(), &service_}})),
        stub_(v1::InferenceService::NewStub(ConnectPeer(address_))) {}

  const std::string address_;
  SteppedServer service_;
  const std::unique_ptr<RpcServer> server_;
  const std::unique_ptr<v1::InferenceService::Stub> stub_;
  grpc::ClientContext context_;
};

TEST_F(DeadlineOfCallTest, SurvivesAStepOfTheServersClock) {
  context_.set_deadline(DeadlineIn(kHang));
  v1::GetModelResponse reply;
  const grpc::Status status = stub_->GetModel(&context_, {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(DeadlineOfCallTest, SurvivesAStepOfTheClientsClock) {
  context_.set_deadline(DeadlineIn(kHang));
  const WallClockStep step(kStep);
  v1::GetModelResponse reply;
  const grpc::Status status = stub_->GetModel(&context_, {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(DeadlineOfCallTest, EndsTheCallAllTheSame) {
  context_.set_deadline(DeadlineIn(std::chrono::seconds(-1)));
  v1::GetModelResponse reply;
  EXPECT_EQ(stub_->GetModel(&context_, {}, &reply).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(DeadlineOfCallTest, ACallWithoutOneHasNone) {
  v1::TokenizeResponse reply;
  const grpc::Status status = stub_->Tokenize(&context_, {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace moestro
