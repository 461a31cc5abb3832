// gRPC adapter of the prefill role.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/inference/prompt_costs.h"
#include "common/kv/lease_writer.h"
#include "common/rpc/handler.h"
#include "common/text/grammar/vocabulary_grammars.h"
#include "moestro/v1/prefill.grpc.pb.h"
#include "services/prefill/metrics.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/turn_queue.h"

namespace moestro::prefill {

class PrefillRpc final : public v1::PrefillService::Service {
 public:
  PrefillRpc(MetricsRegistry& registry, PrefillMetrics& metrics, size_t queue_limit)
      : run_(registry, "Prefill.Run"),
        costs_method_(registry, "Prefill.Costs"),
        metrics_(metrics),
        queue_limit_(queue_limit) {}

  // Until this call, every Run fails as UNAVAILABLE. `runner` must outlive the RPC server. `origin`: of the KV that
  // it computes. Pools of another are refused.
  void Serve(PrefillRunner* runner, text::grammar::VocabularyGrammars* grammars, kv::KvOrigin origin);

  // What Costs answers from now on; before the first call, nothing.
  void SetCosts(const std::vector<PromptCost>& costs);

  grpc::Status Run(grpc::ServerContext* context, const v1::RunRequest* request,
                   grpc::ServerWriter<v1::RunResponse>* writer) override;

  grpc::Status Costs(grpc::ServerContext* context, const v1::CostsRequest* request,
                     v1::CostsResponse* response) override;

  size_t waiting() const { return queue_.waiting(); }
  // Called from time to time. Between prompts, unmaps the pool of an owner that has gone; until then nobody gets its
  // memory.
  void Tick();

 private:
  class EventWriter;

  absl::Status RunQueued(grpc::ServerContext& context, const v1::RunRequest& request,
                         grpc::ServerWriter<v1::RunResponse>& writer);
  // REQUIRES: the caller holds the turn.
  void BetweenPrompts();
  absl::Status Constrain(grpc::ServerContext& context, const v1::RunRequest& request, PrefillJob& job) const;
  // The first token; nullopt for scores. `fp8_activations`: set if inputs were rounded.
  absl::StatusOr<std::optional<Token>> RunNow(grpc::ServerContext& context, const v1::RunRequest& request,
                                              const PrefillJob& job, EventWriter& events, bool& fp8_activations);
  // The pool's mapping, opened again when decode has restarted.
  absl::StatusOr<std::shared_ptr<const kv::KvPoolMapping>> Pool(const std::string& name);

  const RpcMethod run_;
  const RpcMethod costs_method_;
  PrefillMetrics& metrics_;
  const size_t queue_limit_;
  TurnQueue queue_;
  std::atomic<PrefillRunner*> runner_{nullptr};
  kv::KvOrigin origin_;                                    // written before runner_
  text::grammar::VocabularyGrammars* grammars_ = nullptr;  // the same
  Mutex mutex_;
  v1::CostsResponse costs_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const kv::KvPoolMapping> pool_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::prefill
