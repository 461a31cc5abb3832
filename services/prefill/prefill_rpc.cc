#include "services/prefill/prefill_rpc.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/convert.h"
#include "common/telemetry/log.h"

namespace moestro::prefill {
namespace {

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

PrefillJob ToJob(const v1::RunRequest& request) {
  PrefillJob job;
  job.request_id = request.request_id();
  job.token_ids.assign(request.token_ids().begin(), request.token_ids().end());
  job.prompt_tokens = request.prompt_tokens();
  job.sampling = FromProto(request.sampling());
  if (request.has_score()) job.score_top = static_cast<int32_t>(request.score().top());
  job.whole_machine = request.whole_machine();
  job.way = FromProto(request.way());
  job.way_required = request.way_required();
  return job;
}

// Scores are sent in messages of this many positions: large enough to be cheap, small enough to show progress.
constexpr int kScoresPerMessage = 64;

}  // namespace

// Writes events to the stream, and records when the caller is gone.
class PrefillRpc::EventWriter {
 public:
  explicit EventWriter(grpc::ServerWriter<v1::RunResponse>& writer) : writer_(writer) {}

  void Progress(int64_t done, int64_t total) {
    v1::RunResponse reply;
    *reply.mutable_progress() = ToProto(PrefillProgress{static_cast<uint32_t>(done), static_cast<uint32_t>(total)});
    Write(reply);
  }

  void Score(const ScoredToken& scored) {
    *scores_.mutable_scores()->add_scores() = ToProto(scored);
    if (scores_.scores().scores_size() >= kScoresPerMessage) FlushScores();
  }

  void FlushScores() {
    if (scores_.scores().scores_size() > 0) Write(scores_);
    scores_.Clear();
  }

  void FirstToken(const Token& token, bool fp8_activations) {
    v1::RunResponse reply;
    *reply.mutable_first_token() = ToProto(token);
    reply.set_fp8_activations(fp8_activations);
    Write(reply);
  }

  absl::Status status() const { return open_ ? absl::OkStatus() : absl::CancelledError("the caller went away"); }

 private:
  void Write(const v1::RunResponse& reply) { open_ = open_ && writer_.Write(reply); }

  grpc::ServerWriter<v1::RunResponse>& writer_;
  v1::RunResponse scores_;
  bool open_ = true;
};

void PrefillRpc::Serve(PrefillRunner* runner, text::grammar::VocabularyGrammars* grammars, kv::KvOrigin origin) {
  origin_ = std::move(origin);
  grammars_ = grammars;
  runner_ = runner;
}

grpc::Status PrefillRpc::Run(grpc::ServerContext* context, const v1::RunRequest* request,
                             grpc::ServerWriter<v1::RunResponse>* writer) {
  const auto run = [&] {
    metrics_.requests.Increment();
    const absl::Status status = RunQueued(*context, *request, *writer);
    if (!status.ok()) {
      metrics_.failed.Increment();
      LogInfo("[{}] prefill ended: {}", request->request_id(), status.ToString());
    }
    return status;
  };
  return run_.Handle(*context, run, request->request_id());
}

void PrefillRpc::SetCosts(const std::vector<PromptCost>& costs) {
  MutexLock lock(mutex_);
  costs_ = ToProto(costs);
}

grpc::Status PrefillRpc::Costs(grpc::ServerContext* context, const v1::CostsRequest* /*request*/,
                               v1::CostsResponse* response) {
  return costs_method_.Handle(*context, [&]() -> absl::Status {
    if (runner_ == nullptr) return absl::UnavailableError("prefill is still loading");
    MutexLock lock(mutex_);
    *response = costs_;
    return absl::OkStatus();
  });
}

absl::Status PrefillRpc::RunQueued(grpc::ServerContext& context, const v1::RunRequest& request,
                                   grpc::ServerWriter<v1::RunResponse>& writer) {
  if (runner_ == nullptr) return absl::UnavailableError("prefill is still loading");
  const Clock::time_point arrived = Clock::now();
  PrefillJob job = ToJob(request);
  MOE_RETURN_IF_ERROR(Constrain(context, request, job));
  MOE_ASSIGN_OR_RETURN(const auto pool, Pool(request.lease().pool()));
  // The lease must not time out here, unless the owner of the turn hangs.
  const auto look = [&](bool moves) -> absl::Status {
    MOE_RETURN_IF_ERROR(CallStatus(context));
    return moves ? pool->Renew(request.lease().slot(), request.lease().id()) : absl::OkStatus();
  };
  MOE_ASSIGN_OR_RETURN(const TurnQueue::Turn turn, queue_.Wait(queue_limit_, look));
  const double queue_seconds = SecondsSince(arrived);
  metrics_.queue_seconds.Observe(queue_seconds);
  metrics_.running.Set(1);
  if (request.whole_machine()) metrics_.whole_machine.Increment();
  const Clock::time_point start = Clock::now();
  EventWriter events(writer);
  bool fp8_activations = false;
  const absl::StatusOr<std::optional<Token>> token = RunNow(context, request, job, events, fp8_activations);
  const double seconds = SecondsSince(start);
  metrics_.running.Set(0);
  metrics_.seconds.Observe(seconds);
  if (token.ok()) {
    LogInfo("[{}] prefill done: {:.3f} s after {:.3f} s in the queue", request.request_id(), seconds, queue_seconds);
    // Last: whoever reads it finds the prompt counted.
    if (*token) events.FirstToken(**token, fp8_activations);
    events.FlushScores();
  }
  BetweenPrompts();
  MOE_RETURN_IF_ERROR(token.status());
  return events.status();
}

void PrefillRpc::Tick() {
  if (const auto turn = queue_.Try()) BetweenPrompts();
}

void PrefillRpc::BetweenPrompts() {
  {
    MutexLock lock(mutex_);
    if (pool_ != nullptr && !pool_->HasOwner()) pool_ = nullptr;
  }
  if (PrefillRunner* const runner = runner_.load()) runner->BetweenPrompts();
}

// Before the turn: it delays no other prompt.
absl::Status PrefillRpc::Constrain(grpc::ServerContext& context, const v1::RunRequest& request, PrefillJob& job) const {
  if (job.sampling.constraint.kind == Constraint::Kind::kNone || job.score_top) return absl::OkStatus();
  if (job.prompt_tokens < 0 || job.prompt_tokens > std::ssize(job.token_ids)) {
    return absl::InvalidArgumentError("prompt_tokens is above the number of tokens");
  }
  const std::vector<int32_t> stop_ids(request.stop_ids().begin(), request.stop_ids().end());
  const auto check = [&context] { return CallStatus(context); };
  MOE_ASSIGN_OR_RETURN(const auto constraint,
                       text::grammar::Resume(*grammars_, job.sampling.constraint, stop_ids,
                                             std::span(job.token_ids).subspan(job.prompt_tokens), check));
  MOE_ASSIGN_OR_RETURN(const text::grammar::TokenMask* const mask, FindMask(*grammars_, *constraint, check));
  if (mask->empty()) {
    return absl::FailedPreconditionError("the text of the constraint is complete, and no stop id can end it");
  }
  job.mask = *mask;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Token>> PrefillRpc::RunNow(grpc::ServerContext& context, const v1::RunRequest& request,
                                                        const PrefillJob& job, EventWriter& events,
                                                        bool& fp8_activations) {
  KvLease granted = FromProto(request.lease());
  MOE_ASSIGN_OR_RETURN(auto pool, Pool(granted.pool));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<kv::LeaseWriter> lease,
                       kv::LeaseWriter::Acquire(std::move(pool), granted.slot, granted.id, std::move(granted.pages)));
  int64_t computed = lease->valid_tokens();
  LogInfo("[{}] prefill: {} tokens, {} of them already computed{}{}", request.request_id(), request.token_ids_size(),
          computed, request.has_score() ? ", all scored" : "", request.whole_machine() ? ", on the whole machine" : "");
  const PrefillEvents handlers{
      .on_progress =
          [&](int64_t done, int64_t total) {
            metrics_.tokens.Increment(static_cast<double>(std::max<int64_t>(0, done - computed)));
            computed = done;
            events.FlushScores();
            events.Progress(done, total);
          },
      .on_layer = [this] { queue_.Advance(); },
      .on_workers = [this](int workers) { metrics_.workers.Set(workers); },
      .on_score = [&](const ScoredToken& scored) { events.Score(scored); },
      .on_streamed =
          [&](const StreamCounters& run) {
            metrics_.streamed_bytes.Increment(static_cast<double>(run.streamed_bytes));
            metrics_.staged_bytes.Increment(static_cast<double>(run.staged_bytes));
            metrics_.pageable_bytes.Increment(static_cast<double>(run.pageable_bytes));
            metrics_.stall_seconds.Increment(run.stall_seconds);
            metrics_.stream_seconds.Increment(run.wall_seconds);
            metrics_.devices.Set(static_cast<double>(run.devices));
            metrics_.lost_devices.Increment(static_cast<double>(run.lost_devices));
            metrics_.repeated_layers.Increment(static_cast<double>(run.repeated_layers));
            metrics_.link_bytes.Increment(static_cast<double>(run.link_bytes));
            metrics_.exchange_seconds.Increment(run.exchange_seconds);
            metrics_.exchange_wait_seconds.Increment(run.exchange_wait_seconds);
            if (run.ring_slots > 0) {
              metrics_.ring_occupancy.Set(static_cast<double>(run.max_ring_occupancy) /
                                          static_cast<double>(run.ring_slots));
            }
          },
      .on_fp8_inputs = [&] { fp8_activations = true; },
  };
  const auto interrupted = [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(events.status());
    return CallStatus(context);
  };
  return runner_.load()->Run(job, *lease, interrupted, handlers);
}

absl::StatusOr<std::shared_ptr<const kv::KvPoolMapping>> PrefillRpc::Pool(const std::string& name) {
  MutexLock lock(mutex_);
  if (pool_ != nullptr && pool_->name() == name && pool_->HasOwner()) return pool_;
  absl::StatusOr<std::shared_ptr<const kv::KvPoolMapping>> opened = kv::KvPoolMapping::Open(name, origin_);
  // The pool's owner has gone since it granted the lease, or is leaving because the pool is damaged. The caller
  // reserves anew from its successor.
  if (absl::IsNotFound(opened.status()) || absl::IsUnavailable(opened.status())) {
    return absl::AbortedError("the KV pool " + name + " is gone");
  }
  MOE_RETURN_IF_ERROR(opened);
  pool_ = *opened;
  return pool_;
}

}  // namespace moestro::prefill
