#include "common/rpc/health_rpc.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/server.h"
#include "tests/support/hang.h"

namespace moestro {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kName[] = "moestro.test.Named";

// A placeholder for a role's service: the test is about health.
class ServiceWithoutMethods : public grpc::Service {};

HealthCheckRequest Request(const std::string& service) {
  HealthCheckRequest request;
  request.set_service(service);
  return request;
}

class HealthTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the gRPC of the system is not instrumented";
#endif
    server_ = RpcServer::Start({address_}, {{kName, &service_}}).value();
    stub_ = Health::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }

  // One Watch call.
  struct Watching {
    Watching(Health::Stub& stub, const std::string& service) : reader(stub.Watch(&context, Request(service))) {}
    HealthCheckResponse::ServingStatus Next() {
      HealthCheckResponse reply;
      EXPECT_TRUE(reader->Read(&reply));
      return reply.status();
    }
    bool Ended() {
      HealthCheckResponse reply;
      return !reader->Read(&reply);
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
  };

  grpc::Status Check(const std::string& service, HealthCheckResponse& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    return stub_->Check(&context, Request(service), &reply);
  }
  HealthCheckResponse::ServingStatus StatusOf(const std::string& service) {
    HealthCheckResponse reply;
    const grpc::Status status = Check(service, reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.status();
  }

  const std::string address_ = "unix:" + testing::TempDir() + "health-" + std::to_string(getpid()) + ".sock";
  ServiceWithoutMethods service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthTest, NotServingUntilToldSo) {
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf(kName), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf(kName), HealthCheckResponse::SERVING);
  server_->SetServing(false);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthTest, AProcessOfWhichAThreadHangsDoesNotServe) {
  server_->SetAlive(false);
  server_->SetServing(true);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  Watching named(*stub_, kName);
  EXPECT_EQ(named.Next(), HealthCheckResponse::NOT_SERVING);
  server_->SetAlive(true);
  EXPECT_EQ(named.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
  named.context.TryCancel();
}

// Whoever waits for it may wait on.
TEST_F(HealthTest, AProcessTellsThatItStarts) {
  EXPECT_EQ(StatusOf(kStartingService), HealthCheckResponse::NOT_SERVING) << "it may wait for something itself";
  server_->SetStarting();
  EXPECT_EQ(StatusOf(kStartingService), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  server_->SetAlive(false);
  EXPECT_EQ(StatusOf(kStartingService), HealthCheckResponse::NOT_SERVING);
  server_->SetAlive(true);
  server_->SetServing(true);
  EXPECT_EQ(StatusOf(kStartingService), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
}

TEST_F(HealthTest, UnknownServices) {
  HealthCheckResponse reply;
  const grpc::Status status = Check("nobody", reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("nobody"));
  Watching watching(*stub_, "nobody");
  EXPECT_EQ(watching.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  watching.context.TryCancel();
  EXPECT_TRUE(watching.Ended());
}

TEST_F(HealthTest, WatchersSeeEveryLastingChange) {
  Watching process(*stub_, "");
  Watching named(*stub_, kName);
  for (const bool serving : {false, true, false, true}) {
    if (serving) {
      server_->SetServing(true);
      server_->SetServing(true);  // nothing new
    } else {
      server_->SetServing(false);
    }
    const auto expected = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    EXPECT_EQ(process.Next(), expected);
    EXPECT_EQ(named.Next(), expected);
  }
}

TEST_F(HealthTest, DrainTellsWatchersAndDoesNotWaitForThem) {
  server_->SetServing(true);
  std::vector<std::unique_ptr<Watching>> watching;
  for (int i = 0; i < 20; ++i) {
    watching.push_back(std::make_unique<Watching>(*stub_, i % 2 == 0 ? kName : ""));
    EXPECT_EQ(watching.back()->Next(), HealthCheckResponse::SERVING);
  }
  std::thread drain([&] { server_->Drain(std::chrono::hours(24)); });
  for (const auto& each : watching) {
    EXPECT_EQ(each->Next(), HealthCheckResponse::NOT_SERVING);
    EXPECT_TRUE(each->Ended());
    EXPECT_EQ(each->reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  drain.join();  // long before
}

TEST_F(HealthTest, WatchersThatGoAwayAreForgotten) {
  for (int i = 0; i < 50; ++i) {
    Watching watching(*stub_, kName);
    if (i % 2 == 0) {
      EXPECT_EQ(watching.Next(), HealthCheckResponse::NOT_SERVING);
    }
    watching.context.TryCancel();
  }
  server_->SetServing(true);
  Watching last(*stub_, kName);
  EXPECT_EQ(last.Next(), HealthCheckResponse::SERVING);
  last.context.TryCancel();
}

}  // namespace
}  // namespace moestro
