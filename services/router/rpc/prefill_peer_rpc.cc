#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <optional>
#include <utility>

#include "services/router/rpc/convert.h"
#include "services/router/rpc/peer_status.h"
#include "services/router/rpc/prefill_peer.h"

namespace moestro {
namespace {

constexpr char kPeer[] = "prefill";

v1::PrefillRequest ToProto(const PrefillJob& job) {
  v1::PrefillRequest request;
  request.set_request_id(job.request_id);
  request.mutable_token_ids()->Add(job.tokens.begin(), job.tokens.end());
  *request.mutable_lease() = moestro::ToProto(job.lease);
  request.set_prompt_tokens(job.prompt_tokens);
  *request.mutable_sampling() = moestro::ToProto(job.sampling);
  request.set_whole_machine(job.whole_machine);
  return request;
}

}  // namespace

absl::Status RpcPrefillPeer::Call(const v1::PrefillRequest& request, OnReply on_reply) {
  const std::unique_ptr<grpc::ClientContext> context = grpc::ClientContext::FromServerContext(call_);
  const auto reader = stub_.Run(context.get(), request);
  v1::PrefillReply reply;
  absl::Status stopped;
  while (stopped.ok() && reader->Read(&reply)) stopped = on_reply(reply);
  if (!stopped.ok()) context->TryCancel();
  const grpc::Status status = reader->Finish();
  return stopped.ok() ? PeerStatus(status, kPeer) : stopped;
}

absl::StatusOr<GeneratedToken> RpcPrefillPeer::Run(const PrefillJob& job, PrefillProgressFn progress) {
  std::optional<GeneratedToken> token;
  const absl::Status status = Call(ToProto(job), [&](const v1::PrefillReply& reply) {
    if (reply.has_first_token()) token = FromProto(reply.first_token());
    if (!reply.has_progress()) return absl::OkStatus();
    return progress(FromProto(reply.progress()));
  });
  // With the token the pages are complete, even if prefill died right after it.
  if (token) return *token;
  return status.ok() ? EndedEarly(kPeer) : status;
}

absl::Status RpcPrefillPeer::Score(const PrefillJob& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) {
  v1::PrefillRequest request = ToProto(job);
  request.mutable_score()->set_top(top);
  return Call(request, [&](const v1::PrefillReply& reply) {
    if (reply.has_progress()) return progress(FromProto(reply.progress()));
    if (!reply.has_scores()) return absl::OkStatus();
    std::vector<ScoredPosition> positions;
    for (const v1::PositionScore& score : reply.scores().scores()) positions.push_back(FromProto(score));
    return scores(std::move(positions));
  });
}

}  // namespace moestro
