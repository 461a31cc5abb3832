#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_seconds.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "loadtest/client/server.h"
#include "moestro/v1/inference.grpc.pb.h"

namespace moestro::loadtest {
namespace {

gpr_timespec After(double seconds) { return DeadlineIn(std::chrono::duration<double>(seconds)); }

std::string PathName(v1::PrefillPath path) {
  switch (path) {
    case v1::PREFILL_PATH_CHUNKED:
      return "chunked";
    case v1::PREFILL_PATH_SPLIT:
      return "split";
    case v1::PREFILL_PATH_WHOLE_MACHINE:
      return "whole machine";
    default:
      return "";
  }
}

v1::GenerateRequest ToProto(const Request& request) {
  v1::GenerateRequest proto;
  if (request.token_ids.empty()) {
    proto.set_prompt(request.text);
  } else {
    proto.mutable_token_ids()->mutable_ids()->Add(request.token_ids.begin(), request.token_ids.end());
  }
  proto.set_max_tokens(request.max_tokens);
  proto.set_ignore_eos(request.ignore_eos);
  proto.set_temperature(request.temperature);
  if (request.temperature > 0) proto.set_seed(request.seed);
  return proto;
}

// All calls share one completion queue, served by the runner's thread: no locks, and time stamps in one place.
class GrpcTransport : public Transport {
 public:
  GrpcTransport(const std::vector<ServerOptions>& servers, double timeout_seconds)
      : servers_(servers), timeout_seconds_(timeout_seconds) {
    for (const ServerOptions& server : servers) {
      stubs_.push_back(v1::InferenceService::NewStub(ConnectServer(server)));
    }
  }

  ~GrpcTransport() override {
    for (auto& [id, call] : calls_) call->context.TryCancel();
    while (!calls_.empty()) {
      void* tag = nullptr;
      bool ok = false;
      if (!queue_.Next(&tag, &ok)) break;
      Advance(*static_cast<Call*>(tag), ok);
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  double Now() const override { return SteadySeconds(); }

  void Begin(int64_t id, const Request& request) override {
    auto call = std::make_unique<Call>();
    call->id = id;
    call->server = request.server;
    if (timeout_seconds_ > 0) call->context.set_deadline(After(timeout_seconds_));
    call->reader =
        stubs_[static_cast<size_t>(request.server)]->PrepareAsyncGenerate(&call->context, ToProto(request), &queue_);
    call->reader->StartCall(call.get());
    MOE_CHECK(calls_.emplace(id, std::move(call)).second);
  }

  void Cancel(int64_t id) override {
    if (const auto it = calls_.find(id); it != calls_.end()) it->second->context.TryCancel();
  }

  std::optional<TransportEvent> Wait(double until) override {
    for (;;) {
      void* tag = nullptr;
      bool ok = false;
      const auto deadline = After(std::max(0.0, until - Now()));
      if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return std::nullopt;
      if (auto event = Advance(*static_cast<Call*>(tag), ok)) return event;
    }
  }

 private:
  enum class State { kStarting, kReading, kFinishing };
  struct Call {
    int64_t id = 0;
    int server = 0;
    State state = State::kStarting;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader;
    v1::GenerateResponse reply;
    grpc::Status status;
  };

  // After one operation of the call: processes its result and starts the next.
  std::optional<TransportEvent> Advance(Call& call, bool ok) {
    std::optional<TransportEvent> event;
    if (call.state == State::kFinishing) {
      event = TransportEvent{.request = call.id,
                             .at = Now(),
                             .what = End{FromServer(call.status, servers_[static_cast<size_t>(call.server)])}};
      calls_.erase(call.id);
      return event;
    }
    if (!ok) {
      call.state = State::kFinishing;
      call.reader->Finish(&call.status, &call);
      return event;
    }
    if (call.state == State::kReading) event = ToEvent(call);
    call.state = State::kReading;
    call.reader->Read(&call.reply, &call);
    return event;
  }

  std::optional<TransportEvent> ToEvent(const Call& call) const {
    TransportEvent event{.request = call.id, .at = Now(), .what = {}};
    const v1::GenerateResponse& reply = call.reply;
    if (reply.has_started()) {
      const auto& started = reply.started();
      event.what = Started{.request_id = started.request_id(),
                           .prompt_tokens = started.prompt_tokens(),
                           .cached_tokens = started.cached_tokens(),
                           .path = PathName(started.path()),
                           .path_reason = started.path_reason()};
    } else if (reply.has_tokens()) {
      Tokens tokens;
      for (const v1::Token& token : reply.tokens().tokens()) tokens.ids.push_back(token.id());
      event.what = std::move(tokens);
    } else if (reply.has_finished()) {
      const auto& finished = reply.finished();
      event.what = Finished{.queue_seconds = finished.queue_seconds(),
                            .server_ttft_seconds = finished.time_to_first_token_seconds(),
                            .prefill_seconds = finished.prefill_seconds(),
                            .cached_tokens = finished.usage().cached_tokens(),
                            .resumed = finished.resumed(),
                            .path = PathName(finished.path())};
    } else {
      return std::nullopt;  // progress of the prefill
    }
    return event;
  }

  const std::vector<ServerOptions> servers_;
  const double timeout_seconds_;
  std::vector<std::unique_ptr<v1::InferenceService::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  std::map<int64_t, std::unique_ptr<Call>> calls_;
};

}  // namespace

absl::StatusOr<ModelInfo> AskModel(const ServerOptions& server) {
  constexpr double kPatienceSeconds = 10;  // after the connection
  const auto stub = v1::InferenceService::NewStub(ConnectServer(server));
  grpc::ClientContext context;
  context.set_deadline(After(server.connect_seconds + kPatienceSeconds));
  v1::GetModelResponse reply;
  const grpc::Status status = stub->GetModel(&context, {}, &reply);
  if (!status.ok()) return FromServer(status, server);
  if (reply.vocab_size() == 0)
    return absl::FailedPreconditionError(absl::StrCat(server.address, " does not report its vocabulary"));
  return ModelInfo{.name = reply.name(),
                   .fingerprint = reply.fingerprint(),
                   .vocab_size = reply.vocab_size(),
                   .max_context_tokens = reply.max_context_tokens()};
}

std::unique_ptr<Transport> ConnectServers(const std::vector<ServerOptions>& servers, double timeout_seconds) {
  return std::make_unique<GrpcTransport>(servers, timeout_seconds);
}

}  // namespace moestro::loadtest
