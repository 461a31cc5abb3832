#include <grpcpp/client_context.h>

#include <memory>

#include "common/rpc/convert.h"
#include "services/router/rpc/peer_calls.h"

namespace moestro::router {
namespace {

constexpr char kDecodeName[] = "decode";

class RpcDecodeSession final : public DecodeSession {
 public:
  RpcDecodeSession(v1::DecodeService::Stub& stub, OpenCalls& calls, const ClientCall& client)
      : times_(client.times()), call_(calls, client), stream_(stub.Session(call_.context())) {}

  ~RpcDecodeSession() override {
    if (finished_) return;
    call_.context()->TryCancel();
    stream_->Finish();
  }

  absl::StatusOr<Reservation> Reserve(const ReserveRequest& wanted) override {
    v1::SessionRequest request;
    v1::SessionRequest::Reserve& proto = *request.mutable_reserve();
    proto.set_request_id(wanted.request_id);
    proto.mutable_token_ids()->Add(wanted.tokens.begin(), wanted.tokens.end());
    proto.set_max_tokens(wanted.max_tokens);
    proto.set_arrival(wanted.arrival);
    proto.set_cache_scope(wanted.cache_scope);
    proto.set_ignore_cache(wanted.ignore_cache);
    proto.set_fingerprint(wanted.fingerprint);
    v1::SessionResponse reply;
    if (!stream_->Write(request) || !stream_->Read(&reply)) return Finish();
    if (!reply.has_reserved()) return absl::InternalError("decode: the first reply is not a reservation");
    Reservation reservation{.lease = FromProto(reply.reserved().lease()), .max_batch = reply.reserved().max_batch()};
    reservation.lease.cached_tokens = reply.reserved().cached_tokens();
    return reservation;
  }

  absl::Status Start(const DecodeStart& start) override {
    v1::SessionRequest request;
    v1::SessionRequest::Start& proto = *request.mutable_start();
    proto.set_token(start.token.id);
    proto.set_position(start.position);
    proto.set_index(start.index);
    proto.set_max_tokens(start.max_tokens);
    *proto.mutable_sampling() = ToProto(start.sampling);
    proto.mutable_stop_ids()->Add(start.stop_ids.begin(), start.stop_ids.end());
    return stream_->Write(request) ? absl::OkStatus() : Finish();
  }

  absl::Status Prompt(const DecodePrompt& prompt) override {
    v1::SessionRequest request;
    v1::SessionRequest::Prompt& proto = *request.mutable_prompt();
    proto.set_index(prompt.index);
    proto.set_max_tokens(prompt.max_tokens);
    *proto.mutable_sampling() = ToProto(prompt.sampling);
    proto.mutable_stop_ids()->Add(prompt.stop_ids.begin(), prompt.stop_ids.end());
    return stream_->Write(request) ? absl::OkStatus() : Finish();
  }

  absl::StatusOr<DecodeEvent> Next() override {
    v1::SessionResponse reply;
    if (!stream_->Read(&reply)) return Finish();
    waited_seconds_ += reply.waited_seconds();
    if (reply.has_token()) {
      times_.NoteToken();
      return FromProto(reply.token());
    }
    if (reply.has_progress()) return FromProto(reply.progress());
    if (!reply.has_finished()) return absl::InternalError("decode: a reply that is neither token, progress nor end");
    // Lets the call end by itself, so that decode does not mistake the end for a cancellation.
    stream_->WritesDone();
    stream_->Finish();
    finished_ = true;
    return FromProto(reply.finished().reason());
  }

  double waited_seconds() const override { return waited_seconds_; }

  absl::Status GiveUp() override {
    stream_->WritesDone();
    v1::SessionResponse reply;
    while (stream_->Read(&reply)) {
    }
    return Finish();
  }

 private:
  // Ends the call and returns the reason.
  absl::Status Finish() {
    finished_ = true;
    const grpc::Status status = stream_->Finish();
    return status.ok() ? EndedEarly(kDecodeName) : call_.Result(status, kDecodeName);
  }

  CallTimes& times_;
  OpenCalls::Call call_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  double waited_seconds_ = 0;
  bool finished_ = false;
};

class RpcDecodePeer final : public DecodePeer {
 public:
  RpcDecodePeer(v1::DecodeService::Stub& stub, OpenCalls& calls, const ClientCall& call)
      : stub_(stub), calls_(calls), call_(call) {}

  std::unique_ptr<DecodeSession> OpenSession() override {
    return std::make_unique<RpcDecodeSession>(stub_, calls_, call_);
  }

 private:
  v1::DecodeService::Stub& stub_;
  OpenCalls& calls_;
  const ClientCall& call_;
};

}  // namespace

std::unique_ptr<DecodePeer> NewDecodePeer(v1::DecodeService::Stub& stub, OpenCalls& calls, const ClientCall& call) {
  return std::make_unique<RpcDecodePeer>(stub, calls, call);
}

}  // namespace moestro::router
