#include "common/rpc/role_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;

class RoleServerTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the gRPC of the system is not instrumented";
#endif
    node_.run_dir = testing::TempDir() + "role-server-" + std::to_string(getpid());
    std::filesystem::create_directories(node_.run_dir);
  }
  void TearDown() override { std::filesystem::remove_all(node_.run_dir); }

  // Health's answer over the role's socket.
  grpc::health::v1::HealthCheckResponse::ServingStatus Health() {
    const auto channel = grpc::CreateChannel(RoleAddress(node_, "decode"), grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse reply;
    EXPECT_TRUE(grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &reply).ok());
    return reply.status();
  }

  NodeOptions node_;
  TerminationSignal termination_;
  MetricsRegistry registry_{"decode"};
};

TEST_F(RoleServerTest, ListensBeforeItServes) {
  RoleServer server("decode", node_, registry_, termination_);
  ASSERT_TRUE(server.BuildAndStart({}).ok());
  EXPECT_TRUE(std::filesystem::exists(HeartbeatPath(node_, "decode")));
  EXPECT_EQ(Health(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  server.rpc().SetServing(true);
  EXPECT_EQ(Health(), grpc::health::v1::HealthCheckResponse::SERVING);
  RoleServer second("decode", node_, registry_, termination_);
  EXPECT_TRUE(absl::IsUnavailable(second.BuildAndStart({})));
}

TEST_F(RoleServerTest, TicksUntilItFailsOrIsTerminated) {
  RoleServer server("decode", node_, registry_, termination_);
  ASSERT_TRUE(server.BuildAndStart({}).ok());
  int looks = 0;
  const absl::Status failed =
      server.Tick(milliseconds(1), [&] { return ++looks < 3 ? absl::OkStatus() : absl::UnavailableError("damaged"); });
  EXPECT_EQ(failed.message(), "damaged");
  EXPECT_EQ(looks, 3);
  EXPECT_FALSE(server.Terminated());
  const absl::Status ended = server.Tick(milliseconds(1), [&] {
    if (++looks == 5) raise(SIGTERM);  // to this thread: gRPC's other threads may not block it
    return absl::OkStatus();
  });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_TRUE(server.Terminated());
  server.Drain(std::chrono::seconds(0));
}

}  // namespace
}  // namespace moestro
