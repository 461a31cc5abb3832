#include "common/rpc/weight_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "common/process/process.h"
#include "common/rpc/server.h"
#include "moestro/v1/weight_store.grpc.pb.h"

namespace moestro {
namespace {

// Answers every Attach with one reply.
class FakeWeightStore : public v1::WeightStoreService::Service {
 public:
  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest*,
                      grpc::ServerWriter<v1::AttachResponse>* writer) override {
    writer->Write(reply);
    return grpc::Status::OK;
  }
  v1::AttachResponse reply;
};

class WeightClientTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the gRPC of the system is not instrumented";
#endif
  }
  absl::Status StatusOfAttach() {
    const std::string address = "unix:" + testing::TempDir() + "store-" + std::to_string(getpid()) + ".sock";
    const auto server = RpcServer::Start({address}, {{v1::WeightStoreService::service_full_name(), &store_}}).value();
    MetricsRegistry registry("test");
    WeightClient client(address, "test", registry);
    return client.Attach([] { return false; }).status();
  }

  FakeWeightStore store_;
};

// As from a store that is being replaced: the role must be restarted.
TEST_F(WeightClientTest, ASegmentThatHasGoneIsNoMistakeOfTheRole) {
  store_.reply.set_state(v1::AttachResponse::STATE_READY);
  store_.reply.set_segment("moestro.weight-client-test.weights.none.1");
  const absl::Status status = StatusOfAttach();
  EXPECT_EQ(ExitCode(status), kExitUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("weight-client-test"));
}

TEST_F(WeightClientTest, AFailedLoadIsTold) {
  store_.reply.set_state(v1::AttachResponse::STATE_FAILED);
  store_.reply.set_error("config.json: model_type");
  const absl::Status status = StatusOfAttach();
  EXPECT_EQ(ExitCode(status), kExitFailure) << status;
  EXPECT_EQ(status.message(), "weight store: config.json: model_type");
}

}  // namespace
}  // namespace moestro
