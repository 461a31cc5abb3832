#include "services/decode/decode_rpc.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/convert.h"
#include "common/telemetry/log.h"

namespace moestro::decode {
namespace {

using std::chrono_literals::operator""s;

// How long a handler waits for a token before it checks whether its caller is still there.
constexpr std::chrono::milliseconds kCancelPoll(20);

// `M`: SessionRequest's Start or Prompt.
template <typename M>
Continuation ToContinuation(const M& message, uint64_t index) {
  return {.index = index,
          .max_tokens = message.max_tokens(),
          .sampling = FromProto(message.sampling()),
          .stop_ids = {message.stop_ids().begin(), message.stop_ids().end()}};
}

LeaseTable::Request ToRequest(const v1::SessionRequest::Reserve& reserve) {
  return {.tokens = {reserve.token_ids().begin(), reserve.token_ids().end()},
          .max_tokens = reserve.max_tokens(),
          .arrival = reserve.arrival(),
          .cache_scope = reserve.cache_scope(),
          .ignore_cache = reserve.ignore_cache()};
}

v1::SessionResponse ToReply(const TokenStream::Event& event) {
  v1::SessionResponse reply;
  if (const auto* progress = std::get_if<PrefillProgress>(&event)) {
    *reply.mutable_progress() = ToProto(*progress);
  } else if (const auto* token = std::get_if<Token>(&event)) {
    *reply.mutable_token() = ToProto(*token);
  } else {
    reply.mutable_finished()->set_reason(ToProto(std::get<FinishReason>(event)));
  }
  return reply;
}

}  // namespace

void DecodeRpc::Serve(kv::KvPool* pool, LeaseTable* leases, DecodeLoop* loop,
                      text::grammar::VocabularyGrammars* grammars, const std::string& fingerprint,
                      const std::vector<PromptCost>& costs, int background_sequences, double step_seconds) {
  fingerprint_ = fingerprint;
  costs_ = ToProto(costs);
  costs_.set_background_sequences(static_cast<uint32_t>(background_sequences));
  costs_.set_step_seconds(step_seconds);
  grammars_ = grammars;
  pool_ = pool;
  leases_ = leases;
  loop_ = loop;
}

grpc::Status DecodeRpc::Session(grpc::ServerContext* context, Stream* stream) {
  std::string request_id;
  return session_.Handle(
      *context, [&] { return RunSession(*context, *stream, request_id); }, request_id);
}

grpc::Status DecodeRpc::Costs(grpc::ServerContext* context, const v1::CostsRequest* /*request*/,
                              v1::CostsResponse* response) {
  return costs_method_.Handle(*context, [&]() -> absl::Status {
    if (loop_ == nullptr) return absl::UnavailableError("decode is still loading");
    *response = costs_;
    response->set_kv_tokens(static_cast<uint64_t>(pool_.load()->most_tokens()));
    return absl::OkStatus();
  });
}

absl::Status DecodeRpc::CheckWeights(const v1::SessionRequest::Reserve& reserve) const {
  if (reserve.fingerprint().empty() || reserve.fingerprint() == fingerprint_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("decode serves weights ", fingerprint_, ", the router those of ",
                                                    reserve.fingerprint(), ": restart decode"));
}

absl::Status DecodeRpc::RunSession(grpc::ServerContext& context, Stream& stream, std::string& request_id) {
  if (loop_ == nullptr) return absl::UnavailableError("decode is still loading");
  v1::SessionRequest request;
  if (!stream.Read(&request)) return absl::CancelledError("the caller went away");
  if (!request.has_reserve()) return absl::InvalidArgumentError("a session begins with Reserve");
  request_id = request.reserve().request_id();
  MOE_RETURN_IF_ERROR(CheckWeights(request.reserve()));
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<Lease> lease, leases_.load()->Reserve(ToRequest(request.reserve())));
  LogDebug("[{}] lease {:x}: {} pages, {} tokens cached", request_id, lease->kv.id, lease->kv.pages.size(),
           lease->kv.cached_tokens);
  const absl::Status status = RunLease(context, stream, request_id, lease);
  leases_.load()->Release(*lease);
  return status;
}

absl::Status DecodeRpc::RunLease(grpc::ServerContext& context, Stream& stream, const std::string& request_id,
                                 const std::shared_ptr<Lease>& lease) {
  const KvLease& kv = lease->kv;
  const auto renewals = [kv, this] { return pool_.load()->Renewals(kv); };
  LeaseWatch::Entry watched(watch_, LeaseWatch::Clock::now(), renewals, [&context, &request_id, id = kv.id, this] {
    LogWarning("[{}] lease {:x} was neither started nor renewed for {} s (--lease-timeout-seconds): ending it",
               request_id, id, lease_timeout_.count());
    context.TryCancel();
  });
  v1::SessionResponse reply;
  reply.mutable_reserved()->set_cached_tokens(static_cast<uint32_t>(kv.cached_tokens));
  reply.mutable_reserved()->set_max_batch(static_cast<uint32_t>(loop_.load()->max_batch()));
  *reply.mutable_reserved()->mutable_lease() = ToProto(kv);
  if (!stream.Write(reply)) return absl::CancelledError("the caller went away");

  v1::SessionRequest request;
  if (!stream.Read(&request)) {
    // A router whose prefill was cut off closes its side to ask for the reason.
    MOE_RETURN_IF_ERROR(leases_.load()->Check(*lease));
    return absl::CancelledError("the lease was not started");
  }
  watched.Started();
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<TokenStream> tokens, Begin(context, request, lease));
  LogInfo("[{}] decode: {}", request_id, request.has_start() ? "after prefill" : "from the prompt");
  int64_t sent = 0;
  const absl::Status status = Forward(context, stream, *tokens, sent);
  loop_.load()->Remove(tokens);
  LogInfo("[{}] decode ended after {} tokens: {}", request_id, sent, status.ToString());
  return status;
}

absl::Status DecodeRpc::Constrain(grpc::ServerContext& context, std::span<const int32_t> tokens,
                                  Continuation& next) const {
  if (next.sampling.constraint.kind == Constraint::Kind::kNone) return absl::OkStatus();
  if (next.index > tokens.size()) return absl::InvalidArgumentError("index is above the number of tokens");
  MOE_ASSIGN_OR_RETURN(next.constraint, text::grammar::Resume(*grammars_, next.sampling.constraint, next.stop_ids,
                                                              tokens.last(static_cast<size_t>(next.index)),
                                                              [&context] { return CallStatus(context); }));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TokenStream>> DecodeRpc::Begin(grpc::ServerContext& context,
                                                              const v1::SessionRequest& request,
                                                              const std::shared_ptr<Lease>& lease) {
  DecodeLoop& loop = *loop_;
  if (request.has_start()) {
    const v1::SessionRequest::Start& start = request.start();
    Continuation next = ToContinuation(start, uint64_t{start.index()} + 1);
    std::vector<int32_t> tokens = lease->tokens;
    tokens.push_back(start.token());
    MOE_RETURN_IF_ERROR(Constrain(context, tokens, next));
    return loop.Start(lease, {.id = start.token(), .position = start.position()}, next);
  }
  if (request.has_prompt()) {
    Continuation next = ToContinuation(request.prompt(), request.prompt().index());
    MOE_RETURN_IF_ERROR(Constrain(context, lease->tokens, next));
    return loop.Prompt(lease, next);
  }
  return absl::InvalidArgumentError("Start or Prompt must follow Reserve");
}

absl::Status DecodeRpc::Forward(grpc::ServerContext& context, Stream& stream, TokenStream& tokens, int64_t& sent) {
  for (bool is_first = true;;) {
    MOE_RETURN_IF_ERROR(CallStatus(context));
    const std::optional<TokenStream::Event> event = tokens.Next(kCancelPoll);
    if (!event) continue;
    if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
    v1::SessionResponse reply = ToReply(*event);
    if (std::exchange(is_first, false)) reply.set_waited_seconds(tokens.waited().value_or(0s).count());
    if (!stream.Write(reply)) return absl::CancelledError("the caller went away");
    if (std::holds_alternative<Token>(*event)) ++sent;
    if (std::holds_alternative<FinishReason>(*event)) return absl::OkStatus();
  }
}

}  // namespace moestro::decode
