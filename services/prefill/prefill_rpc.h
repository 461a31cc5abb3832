// gRPC adapter of the prefill role.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/kv/lease_writer.h"
#include "common/rpc/handler.h"
#include "moestro/v1/prefill.grpc.pb.h"
#include "services/prefill/metrics.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/turn_queue.h"

namespace moestro {

class PrefillRpc final : public v1::PrefillService::Service {
 public:
  PrefillRpc(MetricsRegistry& registry, PrefillMetrics& metrics, size_t queue_limit)
      : run_(registry, "Prefill.Run"), metrics_(metrics), queue_limit_(queue_limit) {}

  // Until this is called every Run is refused as UNAVAILABLE. `runner` must outlive the RPC server; `fingerprint` is
  // that of the weights it computes with.
  void Serve(PrefillRunner* runner, const std::string& fingerprint);

  grpc::Status Run(grpc::ServerContext* context, const v1::RunRequest* request,
                   grpc::ServerWriter<v1::RunResponse>* writer) override;

  size_t waiting() const { return queue_.waiting(); }
  // Now and then: between prompts lets go of the pool of an owner that has gone, whose memory nobody gets before.
  void Tick();

 private:
  absl::Status RunQueued(grpc::ServerContext& context, const v1::RunRequest& request,
                         grpc::ServerWriter<v1::RunResponse>& writer);
  // REQUIRES the turn.
  void BetweenPrompts();
  absl::Status RunNow(grpc::ServerContext& context, const v1::RunRequest& request,
                      grpc::ServerWriter<v1::RunResponse>& writer);
  // The pool's mapping, opened anew when decode has restarted.
  absl::StatusOr<std::shared_ptr<const KvPoolMapping>> Pool(const std::string& name);

  const RpcMethod run_;
  PrefillMetrics& metrics_;
  const size_t queue_limit_;
  TurnQueue queue_;
  std::atomic<PrefillRunner*> runner_{nullptr};
  std::string fingerprint_;  // written before runner_ is
  Mutex mutex_;
  std::shared_ptr<const KvPoolMapping> pool_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro
