#include <grpcpp/grpcpp.h>

#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/call_context.h"
#include "common/rpc/status.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "services/router/rpc/convert.h"
#include "services/router/rpc/inference_service.h"
#include "services/router/rpc/queued_writer.h"

namespace moestro {
namespace {

ChatMessages FromProto(const v1::Chat& chat) {
  ChatMessages messages;
  for (const v1::ChatMessage& message : chat.messages()) {
    messages.push_back({.role = message.role(), .content = message.content()});
  }
  return messages;
}

TokenList FromProto(const v1::TokenIds& ids) { return {ids.ids().begin(), ids.ids().end()}; }

GenerateInput FromProto(const v1::GenerateRequest& request) {
  GenerateInput input;
  if (request.has_prompt()) input.prompt = PlainText{request.prompt()};
  if (request.has_token_ids()) input.prompt = FromProto(request.token_ids());
  if (request.has_chat()) input.prompt = FromProto(request.chat());
  input.max_tokens = request.max_tokens();
  if (request.has_temperature()) input.temperature = request.temperature();
  if (request.has_top_p()) input.top_p = request.top_p();
  if (request.has_top_k()) input.top_k = request.top_k();
  if (request.has_seed()) input.seed = request.seed();
  input.stop_ids.assign(request.stop_ids().begin(), request.stop_ids().end());
  input.ignore_eos = request.ignore_eos();
  return input;
}

ScoreInput FromProto(const v1::ScoreRequest& request) {
  ScoreInput input{.text = {}, .top = request.top()};
  if (request.has_text()) input.text = PlainText{request.text()};
  if (request.has_token_ids()) input.text = FromProto(request.token_ids());
  return input;
}

template <typename Reply>
absl::Status Send(grpc::ServerWriter<Reply>& writer, const Reply& reply) {
  return writer.Write(reply) ? absl::OkStatus() : absl::CancelledError("the client went away");
}

class RpcGenerateReplies final : public GenerateReplies {
 public:
  explicit RpcGenerateReplies(grpc::ServerWriter<v1::GenerateReply>& writer) : writer_(writer) {}

  absl::Status Started(const std::string& request_id, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    v1::GenerateReply reply;
    v1::GenerateReply::Started& started = *reply.mutable_started();
    started.set_request_id(request_id);
    started.set_prompt_tokens(prompt_tokens);
    started.set_cached_tokens(notice.cached_tokens);
    started.set_path(ToProto(notice.path));
    started.set_path_reason(notice.path_reason);
    return Send(writer_, reply);
  }
  absl::Status Prefill(const PrefillProgress& progress) override {
    v1::GenerateReply reply;
    *reply.mutable_prefill() = ToProto(progress);
    return Send(writer_, reply);
  }
  absl::Status Tokens(const std::vector<GeneratedToken>& tokens, const std::string& text) override {
    v1::GenerateReply reply;
    reply.mutable_tokens()->set_text(text);
    for (const GeneratedToken& token : tokens) *reply.mutable_tokens()->add_tokens() = ToProto(token);
    return Send(writer_, reply);
  }
  absl::Status Finished(const RequestSummary& summary) override {
    v1::GenerateReply reply;
    v1::GenerateReply::Finished& finished = *reply.mutable_finished();
    finished.set_reason(ToProto(summary.reason));
    finished.mutable_usage()->set_prompt_tokens(summary.prompt_tokens);
    finished.mutable_usage()->set_completion_tokens(summary.completion_tokens);
    finished.mutable_usage()->set_cached_tokens(summary.cached_tokens);
    finished.set_queue_seconds(summary.queue_seconds);
    finished.set_time_to_first_token_seconds(summary.time_to_first_token_seconds);
    finished.set_total_seconds(summary.total_seconds);
    finished.set_resumed(summary.resumed);
    finished.set_path(ToProto(summary.path));
    finished.set_prefill_seconds(summary.prefill_seconds);
    return Send(writer_, reply);
  }

 private:
  grpc::ServerWriter<v1::GenerateReply>& writer_;
};

class InferenceService final : public v1::Inference::Service {
 public:
  InferenceService(RequestRunner& runner, const ModelBoard& board, PeerChannels& peers)
      : runner_(runner), board_(board), peers_(peers) {}

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateReply>* writer) override {
    RpcGenerateReplies replies(*writer);
    return WithPeers(*context,
                     [&](const CallPeers& call) { return runner_.Generate(FromProto(*request), call, replies); });
  }

  grpc::Status Score(grpc::ServerContext* context, const v1::ScoreRequest* request,
                     grpc::ServerWriter<v1::ScoreReply>* writer) override {
    // Prefill computes nothing else while it waits for someone to take its scores.
    QueuedWriter<v1::ScoreReply, grpc::ServerWriter<v1::ScoreReply>> replies(*writer);
    const auto sink = [&](const std::vector<ScoredPosition>& scores) {
      v1::ScoreReply reply;
      for (const ScoredPosition& score : scores) *reply.add_scores() = ToProto(score);
      return replies.Push(std::move(reply));
    };
    return WithPeers(*context, [&](const CallPeers& call) -> absl::Status {
      MOE_RETURN_IF_ERROR(runner_.Score(FromProto(*request), call, sink));
      return replies.Finish();
    });
  }

  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request, v1::TokenizeReply* reply) override {
    return ToGrpc(RunTokenize(*request, *reply));
  }

  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeReply* reply) override {
    return ToGrpc(RunDetokenize(*request, *reply));
  }

  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::GetModelReply* reply) override {
    return ToGrpc(RunGetModel(*reply));
  }

 private:
  template <typename Run>
  grpc::Status WithPeers(const grpc::ServerContext& context, Run run) {
    const std::unique_ptr<PrefillPeer> prefill = peers_.Prefill(context);
    const std::unique_ptr<DecodePeer> decode = peers_.Decode(context);
    return ToGrpc(run(CallPeers{*prefill, *decode, [&] { return CallStatus(context); }}));
  }

  absl::Status RunTokenize(const v1::TokenizeRequest& request, v1::TokenizeReply& reply) const {
    MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         request.has_chat() ? EncodeChat(FromProto(request.chat()), *model)
                                            : EncodeText(request.text(), request.no_special_tokens(), *model, "text"));
    reply.mutable_ids()->Add(ids.begin(), ids.end());
    for (const int32_t id : ids) reply.add_pieces(model->text->Piece(id));
    return absl::OkStatus();
  }

  absl::Status RunDetokenize(const v1::DetokenizeRequest& request, v1::DetokenizeReply& reply) const {
    MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
    MOE_ASSIGN_OR_RETURN(*reply.mutable_text(),
                         DecodeIds({request.ids().data(), static_cast<size_t>(request.ids_size())},
                                   request.keep_special_tokens(), *model));
    return absl::OkStatus();
  }

  absl::Status RunGetModel(v1::GetModelReply& reply) const {
    MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
    reply.set_name(model->name);
    reply.set_family(model->family);
    reply.set_max_context_tokens(model->max_context_tokens);
    reply.set_vocab_size(model->vocab_size);
    reply.mutable_stop_ids()->Add(model->stop_ids.begin(), model->stop_ids.end());
    reply.set_has_chat_template(model->text->has_chat_template());
    reply.set_fingerprint(model->fingerprint);
    reply.set_segment_bytes(model->segment_bytes);
    return absl::OkStatus();
  }

  RequestRunner& runner_;
  const ModelBoard& board_;
  PeerChannels& peers_;
};

}  // namespace

std::shared_ptr<grpc::Service> MakeInferenceService(RequestRunner& runner, const ModelBoard& board,
                                                    PeerChannels& peers) {
  return std::make_shared<InferenceService>(runner, board, peers);
}

}  // namespace moestro
