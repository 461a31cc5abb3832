#include <grpcpp/client_context.h>

#include <utility>

#include "common/rpc/deadline.h"
#include "services/router/rpc/client_call.h"

namespace moestro::router {

absl::Status ClientCall::Check() const {
  {
    MutexLock lock(mutex_);
    if (cancelled_) return absl::CancelledError("the client went away");
  }
  if (deadline_ && std::chrono::steady_clock::now() >= *deadline_) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  return absl::OkStatus();
}

std::unique_ptr<grpc::ClientContext> ClientCall::NewContext() const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (deadline_) context->set_deadline(DeadlineIn(*deadline_ - std::chrono::steady_clock::now()));
  return context;
}

void ClientCall::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (const std::function<void()>& on_cancel : watches_) on_cancel();
}

ClientCall::Watch::Watch(const ClientCall& call, std::function<void()> on_cancel) : call_(call) {
  MutexLock lock(call_.mutex_);
  place_ = call_.watches_.insert(call_.watches_.end(), std::move(on_cancel));
  if (call_.cancelled_) (*place_)();
}

ClientCall::Watch::~Watch() {
  MutexLock lock(call_.mutex_);
  call_.watches_.erase(place_);
}

}  // namespace moestro::router
