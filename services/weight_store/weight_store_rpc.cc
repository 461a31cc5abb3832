#include "services/weight_store/weight_store_rpc.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "common/rpc/call_context.h"
#include "common/rpc/status.h"

namespace moestro {
namespace {

// While loading, progress goes out this often; a caller that left is noticed within it too.
constexpr std::chrono::milliseconds kProgressPeriod(200);

v1::AttachReply ToReply(const LoadState::Snapshot& snapshot, const v1::DescribeReply& description) {
  v1::AttachReply reply;
  switch (snapshot.phase) {
    case LoadState::Phase::kLoading:
      reply.set_state(v1::AttachReply::STATE_LOADING);
      break;
    case LoadState::Phase::kReady:
      reply.set_state(v1::AttachReply::STATE_READY);
      break;
    case LoadState::Phase::kFailed:
      reply.set_state(v1::AttachReply::STATE_FAILED);
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

grpc::Status WeightStoreRpc::Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeReply* reply) {
  *reply = description_;
  return grpc::Status::OK;
}

grpc::Status WeightStoreRpc::Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                                    grpc::ServerWriter<v1::AttachReply>* writer) {
  const std::string role = request->role().substr(0, 64);
  metrics_.attached.Increment();
  spdlog::info("{} attached", role);
  LoadState::Snapshot snapshot = state_.Get();
  bool listening = writer->Write(ToReply(snapshot, description_));
  while (listening && !snapshot.closing && CallStatus(*context).ok()) {
    state_.WaitForChange(snapshot, kProgressPeriod);
    const LoadState::Snapshot now = state_.Get();
    const bool news = now.phase != snapshot.phase || now.loaded_bytes != snapshot.loaded_bytes;
    snapshot = now;
    if (news) listening = writer->Write(ToReply(snapshot, description_));
  }
  metrics_.attached.Decrement();
  spdlog::info("{} detached", role);
  return snapshot.closing ? ToGrpc(absl::UnavailableError("the weight store is shutting down")) : grpc::Status::OK;
}

}  // namespace moestro
