#include "services/decode/decode_rpc.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <variant>

#include "common/base/status.h"
#include "common/rpc/call_context.h"
#include "common/rpc/status.h"

namespace moestro {
namespace {

// How long a handler waits for a token before it looks whether its caller is still there.
constexpr std::chrono::milliseconds kCancelPoll(20);

SamplingParams FromProto(const v1::Sampling& sampling) {
  return {sampling.temperature(), sampling.top_p() == 0 ? 1.0f : sampling.top_p(), sampling.top_k(), sampling.seed()};
}

DecodeJob ToJob(const v1::SessionRequest::Start& start, const KvLease& lease) {
  DecodeJob job;
  job.lease = &lease;
  job.token = start.token();
  job.position = start.position();
  job.index = start.index();
  job.max_tokens = start.max_tokens();
  job.sampling = FromProto(start.sampling());
  job.stop_ids.assign(start.stop_ids().begin(), start.stop_ids().end());
  return job;
}

}  // namespace

void DecodeRpc::Serve(KvPool* pool, DecodeLoop* loop) {
  pool_ = pool;
  loop_ = loop;
}

grpc::Status DecodeRpc::Session(grpc::ServerContext* context, Stream* stream) {
  const absl::Status status = RunSession(*context, *stream);
  if (!status.ok()) spdlog::debug("session ended: {}", status.ToString());
  return ToGrpc(status);
}

absl::Status DecodeRpc::RunSession(grpc::ServerContext& context, Stream& stream) {
  if (loop_ == nullptr) return absl::UnavailableError("decode is still loading");
  v1::SessionRequest request;
  if (!stream.Read(&request)) return absl::CancelledError("the caller went away");
  if (!request.has_reserve()) return absl::InvalidArgumentError("a session begins with Reserve");
  KvPool& pool = *pool_;
  const auto& tokens = request.reserve().token_ids();
  MOE_ASSIGN_OR_RETURN(const KvLease lease,
                       pool.Reserve({.tokens = {tokens.data(), static_cast<size_t>(tokens.size())},
                                     .capacity = tokens.size() + static_cast<int64_t>(request.reserve().max_tokens()),
                                     .ignore_cache = true}));
  spdlog::debug("{}: lease {:x}: {} pages", request.reserve().request_id(), lease.id, lease.pages.size());
  const absl::Status status = RunLease(context, stream, lease);
  pool.Release(lease);
  return status;
}

absl::Status DecodeRpc::RunLease(grpc::ServerContext& context, Stream& stream, const KvLease& lease) {
  LeaseWatch::Entry watched(watch_, LeaseWatch::Clock::now() + lease_timeout_, [&] {
    spdlog::warn("lease {:x} was not started within {} s: ended", lease.id, lease_timeout_.count());
    context.TryCancel();
  });
  v1::SessionReply reply;
  v1::KvLease* granted = reply.mutable_reserved()->mutable_lease();
  granted->set_pool(pool_.load()->name());
  granted->set_slot(lease.slot);
  granted->set_id(lease.id);
  granted->mutable_pages()->Assign(lease.pages.begin(), lease.pages.end());
  if (!stream.Write(reply)) return absl::CancelledError("the caller went away");

  v1::SessionRequest request;
  if (!stream.Read(&request)) return absl::CancelledError("the lease was not started");
  watched.Started();
  if (!request.has_start()) return absl::InvalidArgumentError("Start must follow Reserve");
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<TokenStream> tokens, loop_.load()->Start(ToJob(request.start(), lease)));
  const absl::Status status = Forward(context, stream, *tokens);
  loop_.load()->Remove(tokens);
  return status;
}

absl::Status DecodeRpc::Forward(grpc::ServerContext& context, Stream& stream, TokenStream& tokens) {
  while (true) {
    MOE_RETURN_IF_ERROR(CallStatus(context));
    std::optional<TokenStream::Event> event = tokens.Next(kCancelPoll);
    if (!event) continue;
    if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
    v1::SessionReply reply;
    if (const auto* token = std::get_if<SampledToken>(&*event)) {
      reply.mutable_token()->set_id(token->id);
      reply.mutable_token()->set_logprob(token->logprob);
    } else {
      reply.mutable_finished()->set_reason(
          std::get<StopReason>(*event) == StopReason::kStopId ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
    }
    if (!stream.Write(reply)) return absl::CancelledError("the caller went away");
    if (reply.has_finished()) return absl::OkStatus();
  }
}

}  // namespace moestro
