#include <grpcpp/client_context.h>

#include <memory>
#include <optional>
#include <utility>

#include "common/rpc/convert.h"
#include "services/router/rpc/peer_calls.h"

namespace moestro::router {
namespace {

constexpr char kPrefillName[] = "prefill";

v1::RunRequest RunRequestOf(const PrefillRequest& job) {
  v1::RunRequest request;
  request.set_request_id(job.request_id);
  request.mutable_token_ids()->Add(job.tokens.begin(), job.tokens.end());
  *request.mutable_lease() = ToProto(job.lease);
  request.set_prompt_tokens(job.prompt_tokens);
  *request.mutable_sampling() = ToProto(job.sampling);
  request.mutable_stop_ids()->Add(job.stop_ids.begin(), job.stop_ids.end());
  request.set_whole_machine(job.whole_machine);
  if (job.way) request.set_way(ToProto(*job.way));
  request.set_way_required(job.way_required);
  return request;
}

class RpcPrefillPeer final : public PrefillPeer {
 public:
  RpcPrefillPeer(v1::PrefillService::Stub& stub, OpenCalls& calls, const ClientCall& call)
      : stub_(stub), calls_(calls), call_(call) {}

  absl::StatusOr<PrefilledPrompt> Run(const PrefillRequest& job, PrefillProgressFn progress) override;
  absl::Status Score(const PrefillRequest& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) override;

 private:
  using OnReply = absl::FunctionRef<absl::Status(const v1::RunResponse&)>;
  absl::Status Call(const v1::RunRequest& request, OnReply on_reply);

  v1::PrefillService::Stub& stub_;
  OpenCalls& calls_;
  const ClientCall& call_;
};

absl::Status RpcPrefillPeer::Call(const v1::RunRequest& request, OnReply on_reply) {
  OpenCalls::Call call(calls_, call_);
  const auto reader = stub_.Run(call.context(), request);
  v1::RunResponse reply;
  absl::Status stopped;
  while (stopped.ok() && reader->Read(&reply)) stopped = on_reply(reply);
  if (!stopped.ok()) call.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  return stopped.ok() ? call.Result(status, kPrefillName) : stopped;
}

absl::StatusOr<PrefilledPrompt> RpcPrefillPeer::Run(const PrefillRequest& job, PrefillProgressFn progress) {
  std::optional<PrefilledPrompt> prompt;
  const absl::Status status = Call(RunRequestOf(job), [&](const v1::RunResponse& reply) {
    if (reply.has_first_token()) prompt = {FromProto(reply.first_token()), reply.fp8_activations()};
    if (!reply.has_progress()) return absl::OkStatus();
    return progress(FromProto(reply.progress()));
  });
  // Once the token is here the pages are complete, even if prefill died right after it.
  if (prompt) return *prompt;
  return status.ok() ? EndedEarly(kPrefillName) : status;
}

absl::Status RpcPrefillPeer::Score(const PrefillRequest& job, uint32_t top, PrefillProgressFn progress,
                                   ScoresFn scores) {
  v1::RunRequest request = RunRequestOf(job);
  request.mutable_score()->set_top(top);
  return Call(request, [&](const v1::RunResponse& reply) {
    if (reply.has_progress()) return progress(FromProto(reply.progress()));
    if (!reply.has_scores()) return absl::OkStatus();
    std::vector<ScoredToken> positions;
    for (const v1::PositionScore& score : reply.scores().scores()) positions.push_back(FromProto(score));
    return scores(std::move(positions));
  });
}

}  // namespace

std::unique_ptr<PrefillPeer> NewPrefillPeer(v1::PrefillService::Stub& stub, OpenCalls& calls, const ClientCall& call) {
  return std::make_unique<RpcPrefillPeer>(stub, calls, call);
}

}  // namespace moestro::router
