#include <grpcpp/client_context.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "services/cli/client/router_client.h"

namespace moestro::cli {

void AddServerFlags(FlagSet& command, ServerFlags& flags) {
  AddServerOptions(command, flags.router);
  command.Add("--timeout", flags.timeout_seconds, "Seconds until a call is cancelled, at most a week; 0: never")
      .Range(0.0, 604800.0);
  AddCredentialFlags(command, flags.credentials);
}

struct RouterClient::Impl {
  explicit Impl(const ServerFlags& server_flags)
      : flags(server_flags),
        credentials(ReadCredentials(server_flags.credentials)),
        stub(v1::InferenceService::NewStub(
            ConnectServer(server_flags.router, credentials.ok() ? credentials->authorities : ""))) {}

  absl::Status ToStatus(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(absl::StrCat("no result within ", flags.timeout_seconds, " s (--timeout)"));
    }
    return FromServer(status, flags.router);
  }

  const ServerFlags flags;
  const absl::StatusOr<Credentials> credentials;  // no call begins if this is an error
  const std::unique_ptr<v1::InferenceService::Stub> stub;
  Mutex mutex;
  grpc::ClientContext* call ABSL_GUARDED_BY(mutex) = nullptr;  // the call in flight
};

namespace {

// A client context that Cancel can reach while it lives.
template <typename Impl>
class ClientCall {
 public:
  explicit ClientCall(Impl& impl) : impl_(impl) {
    if (impl.flags.timeout_seconds > 0) {
      context_.set_deadline(DeadlineIn(std::chrono::duration<double>(impl.flags.timeout_seconds)));
    }
    const std::string& key = impl.credentials->api_key;
    if (!key.empty()) context_.AddMetadata("authorization", "Bearer " + key);
    MutexLock lock(impl_.mutex);
    impl_.call = &context_;
  }
  ~ClientCall() {
    MutexLock lock(impl_.mutex);
    impl_.call = nullptr;
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  Impl& impl_;
  grpc::ClientContext context_;
};

}  // namespace

RouterClient::RouterClient(const ServerFlags& flags) : impl_(std::make_unique<Impl>(flags)) {}
RouterClient::~RouterClient() = default;

absl::Status RouterClient::Generate(const v1::GenerateRequest& request,
                                    const std::function<void(const v1::GenerateResponse&)>& on_reply) {
  MOE_RETURN_IF_ERROR(impl_->credentials);
  ClientCall call(*impl_);
  const auto reader = impl_->stub->Generate(call.context(), request);
  v1::GenerateResponse reply;
  while (reader->Read(&reply)) on_reply(reply);
  return impl_->ToStatus(reader->Finish());
}

absl::Status RouterClient::Score(const v1::ScoreRequest& request,
                                 const std::function<void(const v1::ScoreResponse&)>& on_reply) {
  MOE_RETURN_IF_ERROR(impl_->credentials);
  ClientCall call(*impl_);
  const auto reader = impl_->stub->Score(call.context(), request);
  v1::ScoreResponse reply;
  while (reader->Read(&reply)) on_reply(reply);
  return impl_->ToStatus(reader->Finish());
}

absl::Status RouterClient::Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse& reply) {
  MOE_RETURN_IF_ERROR(impl_->credentials);
  ClientCall call(*impl_);
  return impl_->ToStatus(impl_->stub->Tokenize(call.context(), request, &reply));
}

absl::Status RouterClient::Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse& reply) {
  MOE_RETURN_IF_ERROR(impl_->credentials);
  ClientCall call(*impl_);
  return impl_->ToStatus(impl_->stub->Detokenize(call.context(), request, &reply));
}

absl::Status RouterClient::GetModel(v1::GetModelResponse& reply) {
  MOE_RETURN_IF_ERROR(impl_->credentials);
  ClientCall call(*impl_);
  return impl_->ToStatus(impl_->stub->GetModel(call.context(), {}, &reply));
}

bool RouterClient::Cancel() {
  MutexLock lock(impl_->mutex);
  if (impl_->call == nullptr) return false;
  impl_->call->TryCancel();
  return true;
}

}  // namespace moestro::cli
