#include <grpcpp/client_context.h>

#include <array>
#include <chrono>

#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/deadline.h"
#include "common/rpc/health_rpc.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/router/rpc/peer_calls.h"
#include "services/router/rpc/peer_channels.h"

namespace moestro::router {

struct PeerChannels::Impl {
  Impl(const std::string& prefill_address, const std::string& decode_address)
      : prefill_channel(ConnectPeer(prefill_address)),
        decode_channel(ConnectPeer(decode_address)),
        prefill(v1::PrefillService::NewStub(prefill_channel)),
        decode(v1::DecodeService::NewStub(decode_channel)),
        health{grpc::health::v1::Health::NewStub(prefill_channel), grpc::health::v1::Health::NewStub(decode_channel)} {}

  std::shared_ptr<grpc::Channel> prefill_channel;
  std::shared_ptr<grpc::Channel> decode_channel;
  std::unique_ptr<v1::PrefillService::Stub> prefill;
  std::unique_ptr<v1::DecodeService::Stub> decode;
  std::array<std::unique_ptr<grpc::health::v1::Health::Stub>, kServingRoles.size()> health;  // by Role
  std::array<OpenCalls, kServingRoles.size()> calls;                                         // the same

  OpenCalls& CallsTo(Role role) { return calls[static_cast<size_t>(role)]; }
};

PeerChannels::PeerChannels(const std::string& prefill_address, const std::string& decode_address)
    : impl_(std::make_unique<Impl>(prefill_address, decode_address)) {}
PeerChannels::~PeerChannels() = default;

std::unique_ptr<PrefillPeer> PeerChannels::Prefill(const ClientCall& call) {
  return NewPrefillPeer(*impl_->prefill, impl_->CallsTo(Role::kPrefill), call);
}

std::unique_ptr<DecodePeer> PeerChannels::Decode(const ClientCall& call) {
  return NewDecodePeer(*impl_->decode, impl_->CallsTo(Role::kDecode), call);
}

Life PeerChannels::Ping(Role role) {
  const auto serves = [&](const char* service) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(std::chrono::seconds(1)));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse reply;
    const grpc::Status status = impl_->health[static_cast<size_t>(role)]->Check(&context, request, &reply);
    return status.ok() && reply.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  if (serves("")) return Life::kUp;
  return serves(kStartingService) ? Life::kStarting : Life::kAway;
}

std::optional<RoleFigures> PeerChannels::Figures(Role role) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(std::chrono::seconds(1)));
  v1::CostsResponse reply;
  const grpc::Status status =
      role == Role::kPrefill ? impl_->prefill->Costs(&context, {}, &reply) : impl_->decode->Costs(&context, {}, &reply);
  if (!status.ok()) return std::nullopt;
  return RoleFigures{.costs = FromProto(reply),
                     .kv_tokens = reply.kv_tokens(),
                     .background_sequences = static_cast<int>(reply.background_sequences()),
                     .step_seconds = reply.step_seconds()};
}

void PeerChannels::CutOff(Role role) { impl_->CallsTo(role).CutOff(); }

}  // namespace moestro::router
