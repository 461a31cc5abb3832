#include "services/weight_store/weight_store_rpc.h"

#include <chrono>

#include "common/telemetry/log.h"

namespace moestro::store {
namespace {

// Progress is sent this often while loading. A caller that left is also noticed within this time.
constexpr std::chrono::milliseconds kProgressPeriod(200);

v1::AttachResponse ToReply(const LoadState::Snapshot& snapshot, const v1::DescribeResponse& description) {
  v1::AttachResponse reply;
  switch (snapshot.phase) {
    case LoadState::Phase::kLoading:
      reply.set_state(v1::AttachResponse::STATE_LOADING);
      break;
    case LoadState::Phase::kReady:
      reply.set_state(v1::AttachResponse::STATE_READY);
      break;
    case LoadState::Phase::kFailed:
      reply.set_state(v1::AttachResponse::STATE_FAILED);
      break;
  }
  reply.set_loaded_bytes(snapshot.loaded_bytes);
  reply.set_total_bytes(snapshot.total_bytes);
  reply.set_segment(snapshot.segment);
  reply.set_fingerprint(description.fingerprint());
  reply.set_model_name(description.model_name());
  reply.set_error(snapshot.error);
  return reply;
}

}  // namespace

grpc::Status WeightStoreRpc::Describe(grpc::ServerContext* context, const v1::DescribeRequest*,
                                      v1::DescribeResponse* reply) {
  return describe_.Handle(*context, [&] {
    *reply = description_;
    return absl::OkStatus();
  });
}

grpc::Status WeightStoreRpc::Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                                    grpc::ServerWriter<v1::AttachResponse>* writer) {
  return attach_.Handle(*context, [&] { return HoldLease(*context, *request, *writer); });
}

absl::Status WeightStoreRpc::HoldLease(grpc::ServerContext& context, const v1::AttachRequest& request,
                                       grpc::ServerWriter<v1::AttachResponse>& writer) {
  const std::string role = request.role().substr(0, 64);
  metrics_.attached.Increment();
  LogInfo("{} attached", role);
  LoadState::Snapshot snapshot = state_.Get();
  bool listening = writer.Write(ToReply(snapshot, description_));
  while (listening && !snapshot.closing && CallStatus(context).ok()) {
    state_.WaitForChange(snapshot, kProgressPeriod);
    const LoadState::Snapshot now = state_.Get();
    const bool news = now.phase != snapshot.phase || now.loaded_bytes != snapshot.loaded_bytes;
    snapshot = now;
    if (news) listening = writer.Write(ToReply(snapshot, description_));
  }
  metrics_.attached.Decrement();
  LogInfo("{} detached", role);
  return snapshot.closing ? absl::UnavailableError("the weight store is shutting down") : absl::OkStatus();
}

}  // namespace moestro::store
