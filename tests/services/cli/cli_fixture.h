// The commands end to end: parsed flags, a fake router over a real socket, and what is printed.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/process/flags.h"
#include "common/rpc/server.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "services/cli/command.h"

namespace moestro::cli {

// Answers every prompt with "ok" and an incomplete character, and remembers what it was asked.
class FakeRouter final : public v1::InferenceService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    v1::GenerateResponse reply;
    reply.mutable_started()->set_request_id("r1");
    reply.mutable_started()->set_path(v1::PREFILL_PATH_SPLIT);
    reply.mutable_started()->set_path_reason("3 new tokens >= 2");
    writer->Write(reply);
    for (int i = 0; i < 2; ++i) {
      v1::Token& token = *reply.mutable_tokens()->add_tokens();
      token.set_id(10 + i);
      token.set_logprob(-0.25f);
      reply.mutable_tokens()->set_text(i == 0 ? "ok" : "\xEF\xBF\xBD");
      writer->Write(reply);
      reply.Clear();
    }
    reply.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
    reply.mutable_finished()->mutable_usage()->set_prompt_tokens(3);
    reply.mutable_finished()->mutable_usage()->set_completion_tokens(2);
    reply.mutable_finished()->mutable_usage()->set_cached_tokens(1);
    reply.mutable_finished()->set_path(v1::PREFILL_PATH_CHUNKED);
    reply.mutable_finished()->set_fp8_activations(true);
    reply.mutable_finished()->set_prefill_seconds(0.25);
    reply.mutable_finished()->set_time_to_first_token_seconds(0.5);
    reply.mutable_finished()->set_total_seconds(1);
    writer->Write(reply);
    return grpc::Status::OK;
  }
  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest* request,
                     grpc::ServerWriter<v1::ScoreResponse>* writer) override {
    {
      std::lock_guard lock(mutex_);
      scored_.push_back(*request);
    }
    v1::ScoreResponse reply;
    for (int i = 0; i < request->token_ids().ids_size(); ++i) {
      v1::PositionScore& score = *reply.add_scores();
      score.set_id(request->token_ids().ids(i));
      if (i > 0) score.set_logprob(-1.5f);
      for (uint32_t j = 0; i > 0 && j < request->top(); ++j) score.add_top()->set_id(7);
    }
    writer->Write(reply);
    return grpc::Status::OK;
  }
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest*, v1::TokenizeResponse* reply) override {
    reply->add_ids(4);
    reply->add_pieces("a\n");
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* reply) override {
    for (const int32_t id : request->ids()) reply->set_text(reply->text() + "<" + std::to_string(id) + ">");
    return grpc::Status::OK;
  }
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::GetModelResponse*) override {
    return {grpc::StatusCode::UNAVAILABLE, "model is loading: 42 %"};
  }

  std::vector<v1::GenerateRequest> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  std::vector<v1::ScoreRequest> scored() {
    std::lock_guard lock(mutex_);
    return scored_;
  }

 private:
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
  std::vector<v1::ScoreRequest> scored_;
};

class CliTest : public ::testing::Test {
 protected:
  CliTest() : directory_(::testing::TempDir() + "cli_" + std::to_string(getpid())) {
    std::filesystem::create_directories(directory_);
    server_ = *RpcServer::Start({address()}, {{v1::InferenceService::service_full_name(), &router_}});
  }
  ~CliTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string address() const { return "unix:" + directory_ + "/router.sock"; }

  struct Result {
    absl::Status status;
    std::string out;
    std::string err;
  };

  // Runs `moestro <arguments>`; those that talk to the router get its address.
  Result Run(std::vector<std::string> arguments, bool with_server = true) {
    ProgramFlags program("");
    program.RequireCommands(1, 1);
    std::vector<Command> commands;
    AddGenerateCommand(program, commands);
    AddChatCommand(program, commands);
    AddScoreCommand(program, commands);
    AddTextCommands(program, commands);
    AddModelCommand(program, commands);
    AddInspectCommand(program, commands);
    AddSegmentsCommands(program, commands);
    AddKeysCommands(program, commands);
    AddMakeModelCommand(program, commands);
    AddRoutingCommand(program, commands);
    AddPlanCommand(program, commands);
    AddSimulateCommand(program, commands);
    AddPaperCommand(program, commands);
    AddBenchCommand(program, commands);
    AddEvalCommand(program, commands);
    if (with_server) arguments.insert(arguments.end(), {"--server", address()});
    Result result;
    result.status = program.Parse(std::move(arguments));
    if (!result.status.ok()) return result;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    for (const Command& command : commands) {
      if (command.flags.WasGiven()) result.status = command.run();
    }
    result.out = ::testing::internal::GetCapturedStdout();
    result.err = ::testing::internal::GetCapturedStderr();
    return result;
  }

  const std::string directory_;
  FakeRouter router_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace moestro::cli
