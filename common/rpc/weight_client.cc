#include "common/rpc/weight_client.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <utility>

#include "common/rpc/channel.h"
#include "common/telemetry/log.h"
#include "moestro/v1/weight_store.grpc.pb.h"

namespace moestro {
namespace {

absl::StatusOr<std::unique_ptr<const weights::WeightSegment>> OpenSegment(const std::string& name,
                                                                          SharedMemory::ReadOnly mapping) {
  auto segment = weights::WeightSegment::Open(name, mapping);
  // Not the role's fault: the segment vanished with a store that is being replaced.
  if (absl::IsNotFound(segment.status())) return absl::UnavailableError(segment.status().message());
  return segment;
}

}  // namespace

WeightClient::WeightClient(std::string address, std::string role, MetricsRegistry& registry,
                           SharedMemory::ReadOnly mapping)
    : address_(std::move(address)),
      role_(std::move(role)),
      registry_(registry),
      attached_bytes_(registry.AddGauge("moestro_weights_attached_bytes", "Bytes of the mapped weight segment")),
      mapping_(mapping) {}

WeightClient::~WeightClient() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  if (lease_.joinable()) lease_.join();
}

WeightClient::Result WeightClient::Attach(const std::function<bool()>& stop) {
  lease_ = std::thread([this] { HoldLease(); });
  MutexLock lock(mutex_);
  while (!delivered_.wait_for(lock, std::chrono::milliseconds(100),
                              [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return result_.has_value(); })) {
    if (stop()) return absl::CancelledError("stopped while waiting for the weight store at " + address_);
  }
  return std::move(*result_);
}

void WeightClient::Deliver(Result result) {
  if (result.ok()) attached_bytes_.Set(static_cast<double>((*result)->header().total_bytes));
  MutexLock lock(mutex_);
  attached_ = true;
  result_ = std::move(result);
  delivered_.notify_all();
}

void WeightClient::HoldLease() {
  while (!stopping_) FollowStore();
}

void WeightClient::FollowStore() {
  auto stub = v1::WeightStoreService::NewStub(ConnectPeer(address_));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    call_ = &context;
  }
  v1::AttachRequest request;
  request.set_role(role_);
  auto stream = stub->Attach(&context, request);
  v1::AttachResponse reply;
  int64_t logged_percent = -1;
  while (stream->Read(&reply)) {
    if (reply.state() == v1::AttachResponse::STATE_LOADING && reply.total_bytes() > 0) {
      const int64_t percent = 100 * reply.loaded_bytes() / reply.total_bytes();
      if (percent / 10 != logged_percent / 10) LogInfo("weights are loading: {} %", percent);
      logged_percent = percent;
    } else if (reply.state() == v1::AttachResponse::STATE_FAILED && !attached_) {
      Deliver(absl::FailedPreconditionError("weight store: " + reply.error()));
    } else if (reply.state() == v1::AttachResponse::STATE_READY && !attached_) {
      fingerprint_ = reply.fingerprint();
      registry_.SetModelName(reply.model_name());
      Deliver(OpenSegment(reply.segment(), mapping_));
    } else if (reply.state() == v1::AttachResponse::STATE_READY && reply.fingerprint() != fingerprint_) {
      LogError("the weight store now serves other weights ({}); restart {} to use them", reply.fingerprint(), role_);
    }
  }
  {
    MutexLock lock(mutex_);
    call_ = nullptr;
  }
  stream->Finish();
  if (!stopping_) {
    LogWarning("the weight store is gone; keeping the mapped weights until it returns");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace moestro
