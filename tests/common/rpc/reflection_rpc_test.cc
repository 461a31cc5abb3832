#include "common/rpc/reflection_rpc.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/rpc/server.h"

namespace moestro {
namespace {

using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;
using testing::ElementsAre;

class EmptyService : public grpc::Service {};

class ReflectionTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the gRPC of the system is not instrumented";
#endif
    server_ = RpcServer::Start({address_}, {{"moestro.test.Named", &service_}}).value();
    stub_ = ServerReflection::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
    stream_ = stub_->ServerReflectionInfo(&context_);
  }
  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(stream_->Write(request) && stream_->Read(&response));
    return response;
  }

  const std::string address_ = "unix:" + testing::TempDir() + "reflection-" + std::to_string(getpid()) + ".sock";
  EmptyService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ServerReflection::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>> stream_;
};

TEST_F(ReflectionTest, OneCallAnswersOneQuestionAfterAnother) {
  ServerReflectionRequest request;
  request.set_list_services("*");
  std::vector<std::string> names;
  const ServerReflectionResponse listed = Ask(request);
  for (const auto& each : listed.list_services_response().service()) names.push_back(each.name());
  EXPECT_THAT(names,
              ElementsAre("moestro.test.Named", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"));
  EXPECT_EQ(listed.original_request().list_services(), "*");

  request.set_file_containing_symbol("grpc.health.v1.Health.Check");
  const ServerReflectionResponse described = Ask(request);
  ASSERT_EQ(described.file_descriptor_response().file_descriptor_proto_size(), 1);
  google::protobuf::FileDescriptorProto file;
  ASSERT_TRUE(file.ParseFromString(described.file_descriptor_response().file_descriptor_proto(0)));
  EXPECT_EQ(file.name(), "grpc/health/v1/health.proto");
  request.set_file_by_filename(file.name());
  EXPECT_EQ(Ask(request).file_descriptor_response().file_descriptor_proto(0),
            described.file_descriptor_response().file_descriptor_proto(0));

  request.set_all_extension_numbers_of_type("grpc.health.v1.HealthCheckRequest");
  EXPECT_EQ(Ask(request).all_extension_numbers_response().extension_number_size(), 0);
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(ReflectionTest, WhatIsNotThereIsAnErrorAndTheCallGoesOn) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol("no.such.Symbol");
  EXPECT_EQ(Ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_file_by_filename("no/such/file.proto");
  EXPECT_EQ(Ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_file_containing_extension()->set_containing_type("grpc.health.v1.HealthCheckRequest");
  EXPECT_EQ(Ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Ask({}).error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_list_services("*");
  EXPECT_EQ(Ask(request).list_services_response().service_size(), 3);
  context_.TryCancel();
}

TEST_F(ReflectionTest, AQuestionThatIsTooLongIsRefused) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(10000, 'x'));
  ServerReflectionResponse response;
  EXPECT_TRUE(stream_->Write(request));
  EXPECT_FALSE(stream_->Read(&response));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace moestro
