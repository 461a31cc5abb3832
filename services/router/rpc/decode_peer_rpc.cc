#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <utility>

#include "services/router/rpc/convert.h"
#include "services/router/rpc/decode_peer.h"
#include "services/router/rpc/peer_status.h"

namespace moestro {
namespace {

constexpr char kPeer[] = "decode";

class RpcDecodeSession final : public DecodeSession {
 public:
  explicit RpcDecodeSession(std::unique_ptr<grpc::ClientContext> context, v1::Decode::Stub& stub)
      : context_(std::move(context)), stream_(stub.Session(context_.get())) {}

  ~RpcDecodeSession() override {
    if (finished_) return;
    context_->TryCancel();
    stream_->Finish();
  }

  absl::StatusOr<Reservation> Reserve(const ReserveRequest& wanted) override {
    v1::SessionRequest request;
    v1::SessionRequest::Reserve& proto = *request.mutable_reserve();
    proto.set_request_id(wanted.request_id);
    proto.mutable_token_ids()->Add(wanted.tokens.begin(), wanted.tokens.end());
    proto.set_max_tokens(wanted.max_tokens);
    proto.set_arrival(wanted.arrival);
    proto.set_ignore_cache(wanted.ignore_cache);
    proto.set_fingerprint(wanted.fingerprint);
    v1::SessionReply reply;
    if (!stream_->Write(request) || !stream_->Read(&reply)) return Finish();
    if (!reply.has_reserved()) return absl::InternalError("decode: the first reply is no reservation");
    return Reservation{.lease = FromProto(reply.reserved().lease()), .cached_tokens = reply.reserved().cached_tokens()};
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
    v1::SessionReply reply;
    if (!stream_->Read(&reply)) return Finish();
    if (reply.has_token()) return FromProto(reply.token());
    if (reply.has_progress()) return FromProto(reply.progress());
    if (!reply.has_finished()) return absl::InternalError("decode: a reply that is no token, no progress and no end");
    // Let the call end by itself, so that decode does not take the end for a cancellation.
    stream_->WritesDone();
    stream_->Finish();
    finished_ = true;
    return FromProto(reply.finished().reason());
  }

  absl::Status GiveUp() override {
    stream_->WritesDone();
    v1::SessionReply reply;
    while (stream_->Read(&reply)) {
    }
    return Finish();
  }

 private:
  // The call is over: why.
  absl::Status Finish() {
    finished_ = true;
    const grpc::Status status = stream_->Finish();
    return status.ok() ? EndedEarly(kPeer) : PeerStatus(status, kPeer);
  }

  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionReply>> stream_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<DecodeSession> RpcDecodePeer::OpenSession() {
  return std::make_unique<RpcDecodeSession>(grpc::ClientContext::FromServerContext(call_), stub_);
}

}  // namespace moestro
