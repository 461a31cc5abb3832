#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/process/node_options.h"
#include "common/rpc/convert.h"
#include "common/rpc/deadline.h"
#include "common/rpc/handler.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "services/router/access/retry_after.h"
#include "services/router/rpc/bounded_request.h"
#include "services/router/rpc/inference_service.h"
#include "services/router/rpc/queued_writer.h"

namespace moestro::router {
namespace {

// A call over gRPC, which tells the calls to roles by itself that the client left.
class RpcClientCall final : public ClientCall {
 public:
  explicit RpcClientCall(const grpc::ServerContext& context) : context_(context) {}

  absl::Status Check() const override {
    MOE_RETURN_IF_ERROR(ClientCall::Check());
    return CallStatus(context_);
  }
  std::unique_ptr<grpc::ClientContext> NewContext() const override {
    return grpc::ClientContext::FromServerContext(context_);
  }

 private:
  const grpc::ServerContext& context_;
};

// These move the texts out of the message instead of copying them.
text::ChatMessage TakeMessage(v1::ChatMessage& message) {
  text::ChatMessage taken{.role = std::move(*message.mutable_role()),
                          .content = std::move(*message.mutable_content()),
                          .tool_call_id = std::move(*message.mutable_tool_call_id()),
                          .name = std::move(*message.mutable_name()),
                          .reasoning_content = std::move(*message.mutable_reasoning_content())};
  for (v1::ToolCall& call : *message.mutable_tool_calls()) {
    taken.tool_calls.push_back({.id = std::move(*call.mutable_id()),
                                .name = std::move(*call.mutable_name()),
                                .arguments = std::move(*call.mutable_arguments())});
  }
  return taken;
}

text::Chat TakeChat(v1::Chat& chat) {
  text::Chat taken;
  taken.messages.reserve(static_cast<size_t>(chat.messages_size()));
  for (v1::ChatMessage& message : *chat.mutable_messages()) taken.messages.push_back(TakeMessage(message));
  taken.tools = std::move(*chat.mutable_tools());
  taken.template_flags = std::move(*chat.mutable_template_flags());
  return taken;
}

PlainText TakeText(std::string& text) { return {.text = std::move(text)}; }

TokenList TokensOf(const v1::TokenIds& ids) { return {ids.ids().begin(), ids.ids().end()}; }

absl::StatusOr<std::optional<PromptWay>> ReadWay(v1::PromptWay way) {
  const std::optional<PromptWay> known = FromProto(way);
  if (!known && way != v1::PROMPT_WAY_UNSPECIFIED) return absl::InvalidArgumentError("way: unknown");
  return known;
}

absl::StatusOr<GenerateInput> ReadGenerate(grpc::ByteBuffer bytes, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(auto request, ParseBounded<v1::GenerateRequest>(std::move(bytes), model));
  GenerateInput input;
  if (request.has_prompt()) input.prompt = TakeText(*request.mutable_prompt());
  if (request.has_token_ids()) input.prompt = TokensOf(request.token_ids());
  if (request.has_chat()) input.prompt = TakeChat(*request.mutable_chat());
  input.max_tokens = request.max_tokens();
  if (request.has_temperature()) input.temperature = request.temperature();
  if (request.has_top_p()) input.top_p = request.top_p();
  if (request.has_top_k()) input.top_k = request.top_k();
  if (request.has_seed()) input.seed = request.seed();
  input.stop_ids.assign(request.stop_ids().begin(), request.stop_ids().end());
  input.ignore_eos = request.ignore_eos();
  input.cache_scope = request.cache_scope();
  input.stop.assign(std::make_move_iterator(request.mutable_stop()->begin()),
                    std::make_move_iterator(request.mutable_stop()->end()));
  if (request.has_min_p()) input.min_p = request.min_p();
  if (request.has_presence_penalty()) input.presence_penalty = request.presence_penalty();
  if (request.has_frequency_penalty()) input.frequency_penalty = request.frequency_penalty();
  if (request.has_repetition_penalty()) input.repetition_penalty = request.repetition_penalty();
  input.logit_bias = FromProto(request.logit_bias());
  input.top_logprobs = request.top_logprobs();
  input.keep_special_tokens = request.keep_special_tokens();
  input.request_id = request.request_id();
  input.constraint = FromProto(request.constraint());
  MOE_ASSIGN_OR_RETURN(input.way, ReadWay(request.way()));
  return input;
}

absl::StatusOr<ScoreInput> ReadScore(grpc::ByteBuffer bytes, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(auto request, ParseBounded<v1::ScoreRequest>(std::move(bytes), model));
  ScoreInput input{.text = {}, .top = request.top()};
  MOE_ASSIGN_OR_RETURN(input.way, ReadWay(request.way()));
  if (request.has_text()) input.text = TakeText(*request.mutable_text());
  if (request.has_token_ids()) input.text = TokensOf(request.token_ids());
  return input;
}

absl::StatusOr<TokenizeInput> ReadTokenize(grpc::ByteBuffer bytes, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(auto request, ParseBounded<v1::TokenizeRequest>(std::move(bytes), model));
  TokenizeInput input{.text = {}, .plain = request.no_special_tokens()};
  if (request.has_chat()) {
    input.text = TakeChat(*request.mutable_chat());
  } else {
    input.text = TakeText(*request.mutable_text());
  }
  return input;
}

absl::StatusOr<DetokenizeInput> ReadDetokenize(grpc::ByteBuffer bytes, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const auto request, ParseBounded<v1::DetokenizeRequest>(std::move(bytes), model));
  return DetokenizeInput{.ids = {request.ids().begin(), request.ids().end()},
                         .keep_special_tokens = request.keep_special_tokens()};
}

// A TokenizeResponse in wire format. Avoids a message that would have a string for every id.
grpc::ByteBuffer WriteTokens(const std::vector<int32_t>& ids, const ModelText& text) {
  v1::TokenizeResponse head;
  head.mutable_ids()->Add(ids.begin(), ids.end());
  std::string wire = head.SerializeAsString();
  {
    google::protobuf::io::StringOutputStream stream(&wire);  // appends
    google::protobuf::io::CodedOutputStream out(&stream);
    for (const int32_t id : ids) {
      google::protobuf::internal::WireFormatLite::WriteString(v1::TokenizeResponse::kPiecesFieldNumber, text.Piece(id),
                                                              &out);
    }
  }
  const grpc::Slice slice(wire);
  return grpc::ByteBuffer(&slice, 1);
}

// The thread that computes the replies serves other clients too, so it does not wait until a client reads them.
template <typename Reply>
using Replies = QueuedWriter<Reply, grpc::ServerWriter<Reply>>;

class RpcGenerateReplies final : public GenerateReplies {
 public:
  explicit RpcGenerateReplies(Replies<v1::GenerateResponse>& replies) : replies_(replies) {}

  void Bounded(uint32_t max_tokens) override { max_tokens_ = max_tokens; }
  absl::Status Started(const std::string& request_id, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    v1::GenerateResponse reply;
    v1::GenerateResponse::Started& started = *reply.mutable_started();
    started.set_request_id(request_id);
    started.set_prompt_tokens(prompt_tokens);
    started.set_cached_tokens(notice.cached_tokens);
    started.set_path(ToProto(notice.path));
    started.set_path_reason(notice.path_reason);
    started.set_max_tokens(max_tokens_);
    return replies_.Push(std::move(reply));
  }
  absl::Status Prefill(const PrefillProgress& progress) override {
    v1::GenerateResponse reply;
    *reply.mutable_prefill() = ToProto(progress);
    return replies_.Push(std::move(reply));
  }
  absl::Status Tokens(const std::vector<Token>& tokens, const std::string& text) override {
    v1::GenerateResponse reply;
    reply.mutable_tokens()->set_text(text);
    for (const Token& token : tokens) *reply.mutable_tokens()->add_tokens() = ToProto(token);
    return replies_.Push(std::move(reply));
  }
  absl::Status Finished(const RequestSummary& summary) override {
    v1::GenerateResponse reply;
    v1::GenerateResponse::Finished& finished = *reply.mutable_finished();
    finished.set_reason(ToProto(summary.reason));
    finished.set_stop_text(summary.stop_text);
    finished.mutable_usage()->set_prompt_tokens(summary.prompt_tokens);
    finished.mutable_usage()->set_completion_tokens(summary.completion_tokens);
    finished.mutable_usage()->set_cached_tokens(summary.cached_tokens);
    finished.set_queue_seconds(summary.queue_seconds);
    finished.set_time_to_first_token_seconds(summary.time_to_first_token_seconds);
    finished.set_total_seconds(summary.total_seconds);
    finished.set_resumed(summary.resumed);
    finished.set_path(ToProto(summary.path));
    finished.set_prefill_seconds(summary.prefill_seconds);
    finished.set_fp8_activations(summary.fp8_activations);
    return replies_.Push(std::move(reply));
  }

 private:
  Replies<v1::GenerateResponse>& replies_;
  uint32_t max_tokens_ = 0;
};

std::string_view Metadata(const grpc::ServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

Credentials CredentialsOf(const grpc::ServerContext& context) {
  return {.authorization = Metadata(context, "authorization"),
          .api_key = Metadata(context, "x-api-key"),
          .local = context.peer().starts_with("unix:")};
}

// Takes the bytes of the requests, and parses them when their bounds are known. v1::InferenceService::Service does not
// offer that. So this class registers its methods with the handlers that the generated code uses.
class InferenceService final : public grpc::Service {
 public:
  InferenceService(MetricsRegistry& registry, RequestRunner& runner, const ModelBoard& board, PeerChannels& peers,
                   SlowClients& clients, AccessControl& access)
      : generate_(registry, "Inference.Generate"),
        score_(registry, "Inference.Score"),
        tokenize_(registry, "Inference.Tokenize"),
        detokenize_(registry, "Inference.Detokenize"),
        abort_(registry, "Inference.Abort"),
        get_model_(registry, "Inference.GetModel"),
        runner_(runner),
        board_(board),
        peers_(peers),
        clients_(clients),
        access_(access) {
    AddStreaming("/moestro.v1.InferenceService/Generate", &InferenceService::Generate);
    AddStreaming("/moestro.v1.InferenceService/Score", &InferenceService::Score);
    AddUnary("/moestro.v1.InferenceService/Tokenize", &InferenceService::Tokenize);
    AddUnary("/moestro.v1.InferenceService/Detokenize", &InferenceService::Detokenize);
    AddUnary("/moestro.v1.InferenceService/Abort", &InferenceService::Abort);
    AddUnary("/moestro.v1.InferenceService/GetModel", &InferenceService::GetModel);
  }

  grpc::Status Generate(grpc::ServerContext* context, const RequestBytes* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) {
    const auto read = [request](const ServedModel& model) { return ReadGenerate(request->Take(), model); };
    Replies<v1::GenerateResponse> queue(*writer, clients_, [context] { context->TryCancel(); });
    RpcGenerateReplies replies(queue);
    return WithPeers(generate_, *context, access::Endpoint::kGenerate, request->size(),
                     [&](const CallPeers& call) -> absl::Status {
                       MOE_RETURN_IF_ERROR(runner_.Generate(read, call, replies));
                       return queue.Finish();
                     });
  }

  grpc::Status Score(grpc::ServerContext* context, const RequestBytes* request,
                     grpc::ServerWriter<v1::ScoreResponse>* writer) {
    const auto read = [request](const ServedModel& model) { return ReadScore(request->Take(), model); };
    Replies<v1::ScoreResponse> replies(*writer, clients_, [context] { context->TryCancel(); });
    const auto sink = [&](const std::vector<ScoredToken>& scores) {
      v1::ScoreResponse reply;
      for (const ScoredToken& score : scores) *reply.add_scores() = ToProto(score);
      return replies.Push(std::move(reply));
    };
    return WithPeers(score_, *context, access::Endpoint::kScore, request->size(),
                     [&](const CallPeers& call) -> absl::Status {
                       MOE_RETURN_IF_ERROR(runner_.Score(read, call, sink));
                       return replies.Finish();
                     });
  }

  grpc::Status Tokenize(grpc::ServerContext* context, const RequestBytes* request, grpc::ByteBuffer* reply) {
    const auto read = [request](const ServedModel& model) { return ReadTokenize(request->Take(), model); };
    return Admitted(tokenize_, *context, access::Endpoint::kTokenize, [&](const auto&) -> absl::Status {
      MOE_ASSIGN_OR_RETURN(const auto tokens,
                           runner_.Tokenize(read, request->size(), [context] { return CallStatus(*context); }));
      *reply = WriteTokens(tokens.ids, *tokens.model->text);
      return absl::OkStatus();
    });
  }

  grpc::Status Detokenize(grpc::ServerContext* context, const RequestBytes* request, v1::DetokenizeResponse* reply) {
    const auto read = [request](const ServedModel& model) { return ReadDetokenize(request->Take(), model); };
    return Admitted(detokenize_, *context, access::Endpoint::kTokenize, [&](const auto&) -> absl::Status {
      MOE_ASSIGN_OR_RETURN(*reply->mutable_text(),
                           runner_.Detokenize(read, request->size(), [context] { return CallStatus(*context); }));
      return absl::OkStatus();
    });
  }

  grpc::Status Abort(grpc::ServerContext* context, const RequestBytes* request, v1::AbortResponse*) {
    return abort_.Handle(*context, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(const std::shared_ptr<Tenant> tenant, access_.Identify(CredentialsOf(*context)));
      MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
      MOE_ASSIGN_OR_RETURN(const auto abort, ParseBounded<v1::AbortRequest>(request->Take(), *model));
      return runner_.Abort(*tenant, abort.request_id());
    });
  }

  grpc::Status GetModel(grpc::ServerContext* context, const RequestBytes* request, v1::GetModelResponse* reply) {
    return get_model_.Handle(*context, [&]() -> absl::Status {
      MOE_RETURN_IF_ERROR(access_.Identify(CredentialsOf(*context)));
      return RunGetModel(request->Take(), *reply);
    });
  }

 private:
  // Runs the call for the tenant that its key belongs to. A refused caller learns when to try again.
  template <typename Run>
  grpc::Status Admitted(const RpcMethod& method, grpc::ServerContext& context, access::Endpoint endpoint, Run run) {
    return method.Handle(context, [&] {
      const absl::StatusOr<std::shared_ptr<Tenant>> tenant = access_.Admit(CredentialsOf(context), endpoint);
      const absl::Status status = tenant.ok() ? run(*tenant) : tenant.status();
      if (const auto seconds = RetryAfterSeconds(status))
        context.AddTrailingMetadata(kRetryAfter, absl::StrCat(*seconds));
      return status;
    });
  }

  template <typename Run>
  grpc::Status WithPeers(const RpcMethod& method, grpc::ServerContext& context, access::Endpoint endpoint, size_t bytes,
                         Run run) {
    return Admitted(method, context, endpoint, [&](const std::shared_ptr<Tenant>& tenant) {
      RpcClientCall client(context);
      const std::unique_ptr<PrefillPeer> prefill = peers_.Prefill(client);
      const std::unique_ptr<DecodePeer> decode = peers_.Decode(client);
      return run(CallPeers{.prefill = *prefill,
                           .decode = *decode,
                           .check = [&] { return client.Check(); },
                           .cancel = [&] { client.Cancel(); },
                           .tenant = tenant,
                           .bytes = bytes,
                           .deadline = DeadlineOf(context)});
    });
  }

  template <typename Reply>
  void AddStreaming(const char* name,
                    grpc::Status (InferenceService::*method)(grpc::ServerContext*, const RequestBytes*,
                                                             grpc::ServerWriter<Reply>*)) {
    using Handler = grpc::internal::ServerStreamingHandler<InferenceService, RequestBytes, Reply>;
    Add(name, grpc::internal::RpcMethod::SERVER_STREAMING, new Handler(std::mem_fn(method), this));
  }
  template <typename Reply>
  void AddUnary(const char* name,
                grpc::Status (InferenceService::*method)(grpc::ServerContext*, const RequestBytes*, Reply*)) {
    using Handler = grpc::internal::RpcMethodHandler<InferenceService, RequestBytes, Reply>;
    Add(name, grpc::internal::RpcMethod::NORMAL_RPC, new Handler(std::mem_fn(method), this));
  }
  void Add(const char* name, grpc::internal::RpcMethod::RpcType type, grpc::internal::MethodHandler* handler) {
    AddMethod(new grpc::internal::RpcServiceMethod(name, type, handler));
  }

  absl::Status RunGetModel(grpc::ByteBuffer bytes, v1::GetModelResponse& reply) const {
    MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
    MOE_RETURN_IF_ERROR(ParseBounded<v1::GetModelRequest>(std::move(bytes), *model).status());
    reply.set_name(model->name);
    reply.set_family(model->family);
    reply.set_max_context_tokens(model->max_context_tokens);
    reply.set_vocab_size(model->vocab_size);
    reply.mutable_stop_ids()->Add(model->stop_ids.begin(), model->stop_ids.end());
    reply.set_has_chat_template(model->text->has_chat_template());
    reply.set_fingerprint(model->fingerprint);
    reply.set_segment_bytes(model->segment_bytes);
    reply.set_default_temperature(model->default_temperature);
    reply.set_default_top_p(model->default_top_p);
    reply.set_default_top_k(model->default_top_k);
    reply.set_default_min_p(model->default_min_p);
    reply.set_default_repetition_penalty(model->default_repetition_penalty);
    reply.set_sampling_source(model->sampling_source);
    reply.set_default_max_tokens(runner_.default_max_tokens(*model));
    reply.set_bos_token(model->bos_token);
    reply.set_eos_token(model->eos_token);
    reply.set_chat_template(model->chat_template);
    reply.set_tool_use_template(model->tool_use_template);
    reply.set_created_seconds(model->created_seconds);
    reply.set_ready(board_.Ready().ok());
    for (const Role role : kServingRoles) {
      v1::Role& state = *reply.add_roles();
      state.set_name(RoleName(role));
      state.set_up(runner_.IsUp(role));
    }
    reply.set_version(ProgramVersion());
    return absl::OkStatus();
  }

  const RpcMethod generate_;
  const RpcMethod score_;
  const RpcMethod tokenize_;
  const RpcMethod detokenize_;
  const RpcMethod abort_;
  const RpcMethod get_model_;
  RequestRunner& runner_;
  const ModelBoard& board_;
  PeerChannels& peers_;
  SlowClients& clients_;
  AccessControl& access_;
};

}  // namespace

std::shared_ptr<grpc::Service> MakeInferenceService(MetricsRegistry& registry, RequestRunner& runner,
                                                    const ModelBoard& board, PeerChannels& peers, SlowClients& clients,
                                                    AccessControl& access) {
  return std::make_shared<InferenceService>(registry, runner, board, peers, clients, access);
}

}  // namespace moestro::router
